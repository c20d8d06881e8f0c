"""Channels between the host and the stages (contract, 10 to 10.4)."""

import asyncio

import numpy as np
import pytest

from inferlet import (
    Channel,
    ChannelFull,
    InferletError,
    Pipeline,
    TraceError,
    WorkingSet,
    constant,
    dtype,
)
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import (
    appending,
    count_up,
    greedy,
    on_engine,
    putting,
    same,
    sent,
    settle,
)


def producer(ws, *channels, tokens=(1,)):
    """A pass that puts the number of tokens so far on the channels."""
    return appending(ws, list(tokens), putting(*channels))[0]


# ---- the host takes what stages put


@on_engine(count_up)
async def test_take_gives_cells_in_order_with_shape_and_dtype(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(3)
    fwd = producer(ws, out)
    for _ in range(3):
        pipe.submit(fwd)
    for expected in (1, 2, 3):
        assert same(await out.take(), np.array([expected], np.int32))


@on_engine(count_up)
async def test_read_leaves_the_cell(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(producer(ws, out))
    assert await out.read() == await out.read() == await out.take() == 1
    with pytest.raises(InferletError, match="nothing will fill"):
        await out.read()


@on_engine(count_up)
async def test_the_array_is_the_callers_own(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(producer(ws, out))
    array = await out.read()
    array[0] = 99
    assert await out.take() == 1


@on_engine(count_up)
async def test_take_scalar_gives_a_python_number(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel((), dtype.i32)
    pipe.submit(producer(ws, out))
    value = await out.take_scalar()
    assert (type(value), value) == (int, 1)


@on_engine(count_up)
async def test_take_scalar_of_more_elements_consumes_nothing(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([2], dtype.i32)

    def put_pair():
        out.put(constant([3, 4], dtype.i32))

    pipe.submit(appending(ws, [1], put_pair)[0])
    with pytest.raises(InferletError, match="more than one element"):
        await out.take_scalar()
    assert same(await out.take(), np.array([3, 4], np.int32))


@on_engine(count_up)
async def test_waiting_takes_are_served_in_call_order(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(3)
    fwd = producer(ws, out)
    for _ in range(3):
        pipe.submit(fwd)
    tasks = [asyncio.create_task(out.take_scalar()) for _ in range(3)]
    assert await asyncio.gather(*tasks) == [1, 2, 3]


@on_engine(count_up)
async def test_a_cancelled_take_loses_no_cell(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(3)
    fwd = producer(ws, out)
    for _ in range(3):
        pipe.submit(fwd)
    # Cancelled after 0, 1, 2, … ticks: before, at and after the arrival of its cell.
    taken = []
    for ticks in range(60):
        if len(taken) == 3:
            break
        task = asyncio.create_task(out.take_scalar())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        taken += [r for r in await asyncio.gather(task, return_exceptions=True) if type(r) is int]
    assert taken == [1, 2, 3]


@on_engine(count_up)
async def test_the_taker_behind_a_cancelled_one_is_served(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(2)
    fwd = producer(ws, out)
    pipe.submit(fwd)
    pipe.submit(fwd)
    first, second = (asyncio.create_task(out.take_scalar()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1


@on_engine(count_up)
async def test_a_take_that_nothing_will_fill_fails_at_once(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    with pytest.raises(InferletError, match="nothing will fill"):
        await out.take()
    pipe.submit(producer(ws, out))
    takers = asyncio.gather(out.take_scalar(), out.take_scalar(), return_exceptions=True)
    one, error = await takers
    assert one == 1 and "nothing will fill" in str(error)


@on_engine(count_up)
async def test_seeds_come_before_what_stages_put(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel.from_([70]).capacity(3)
    out.put(71)
    pipe.submit(producer(ws, out))
    assert [await out.take_scalar() for _ in range(3)] == [70, 71, 1]


@on_engine(count_up)
async def test_cells_of_settled_fires_are_there_when_the_host_first_looks(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(4)
    fwd = producer(ws, out)
    pipe.submit(fwd)
    pipe.submit(fwd)
    await settle()
    pipe.submit(fwd)
    assert [await out.take_scalar() for _ in range(3)] == [1, 2, 3]
    pipe.submit(fwd)
    assert await out.take_scalar() == 4


# ---- accounting


@on_engine(count_up)
async def test_a_full_ring_refuses_the_submit_until_a_take_completes(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).named("out")
    fwd = producer(ws, out)
    pipe.submit(fwd)
    before = len(hub.commands)
    with pytest.raises(InferletError, match=r"(?s)`out`.*capacity is 1.*hint: take its cells"):
        pipe.submit(fwd)
    await settle()
    assert not sent(hub, m.Submit)[1:] and ws.folded() == 1 and before >= 0
    await out.take()
    pipe.submit(fwd)
    assert await out.take_scalar() == 2


@on_engine(count_up)
async def test_a_front_that_will_be_missing_refuses_the_submit(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([1], dtype.i32).named("feed")
    fwd, _ = appending(ws, feed)
    with pytest.raises(InferletError, match=r"(?s)`feed`.*will be empty.*put or seed"):
        pipe.submit(fwd)
    feed.put(7)
    pipe.submit(fwd)
    with pytest.raises(InferletError, match="will be empty"):
        pipe.submit(fwd)
    await settle()
    assert hub.worker.sets_ever[0] == [7]


@on_engine(count_up)
async def test_a_put_counts_without_the_cells_that_accepted_fires_will_pop(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    fwd, _ = appending(ws, feed)
    for token in (7, 8, 9):
        feed.put(token)
        pipe.submit(fwd)
    feed.put(10)
    with pytest.raises(ChannelFull, match="full"):
        feed.put(11)
    await settle()
    assert hub.worker.sets_ever[0] == [7, 8, 9]


@on_engine(count_up)
async def test_reading_before_putting_grows_the_ring_and_taking_does_not(hub):
    ws, pipe = WorkingSet(), Pipeline()
    grows, keeps = Channel.from_(0), Channel.from_(0)

    def read_then_put():
        grows.put(grows.read() + 1)

    def take_then_put():
        keeps.put(keeps.take() + 1)

    with pytest.raises(InferletError, match=r"(?s)will be full.*take.* before .*put"):
        pipe.submit(appending(ws, [1], read_then_put)[0])
    fwd, _ = appending(ws, [1], take_then_put)
    for _ in range(5):
        pipe.submit(fwd)


@on_engine(count_up)
async def test_a_refused_first_submit_changes_nothing_and_may_be_retried(hub):
    ws, pipe, feed, calls = WorkingSet(), Pipeline(), Channel([1], dtype.i32), []

    def stage():
        calls.append(1)
        feed.take()

    fwd, _ = appending(ws, [1], stage)
    for _ in range(2):
        with pytest.raises(InferletError, match="will be empty"):
            pipe.submit(fwd)
    feed.capacity(2)  # still legal: no submit used it
    feed.put(1)
    pipe.submit(fwd)
    await settle()
    assert (len(calls), ws.folded(), len(sent(hub, m.DefinePass))) == (1, 1, 1)


# ---- set


@on_engine(count_up)
async def test_set_replaces_what_the_next_submitted_fire_finds(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(3)
    fwd, _ = appending(ws, feed)
    feed.put(1)
    feed.set(2)  # before the first submit
    feed.put(3)
    pipe.submit(fwd)
    feed.set(4)  # the accepted fire keeps its 2
    pipe.submit(fwd)
    await settle()
    assert hub.worker.sets_ever[0] == [2, 4]


@on_engine(count_up)
async def test_set_without_a_cell_is_refused(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel.from_([1])
    with pytest.raises(InferletError, match="holds no cell"):
        Channel([1], dtype.i32).set(1)
    pipe.submit(appending(ws, feed)[0])
    with pytest.raises(InferletError, match="holds no cell"):
        feed.set(1)


@on_engine(count_up)
async def test_a_read_channel_keeps_its_cell_and_set_changes_it(hub):
    ws, pipe, knob = WorkingSet(), Pipeline(), Channel.from_(5)
    fwd, result = appending(ws, [1], lambda: knob.read() * 2)
    values = []
    for value in (None, 6, 7):
        if value:
            knob.set(value)
        pipe.submit(fwd)
        values.append(await result)
    assert values == [10, 12, 14]


# ---- ends


@on_engine(count_up)
async def test_the_host_may_not_use_the_stages_end(hub):
    ws, pipe = WorkingSet(), Pipeline()
    read, loop, out = Channel.from_([1]), Channel.from_([1]), Channel([1], dtype.i32)

    def stage():
        read.read()
        loop.put(loop.take())
        out.put(loop.take())

    pipe.submit(appending(ws, [1], stage)[0])
    for wrong in (read.take, read.read, loop.take, loop.read):
        with pytest.raises(TraceError, match="(?s)cannot.*hint: use a second channel"):
            await wrong()
    for channel in (loop, out):
        with pytest.raises(TraceError, match="second channel"):
            channel.put(1)
        with pytest.raises(TraceError, match="second channel"):
            channel.set(1)


@on_engine(count_up)
async def test_a_pass_may_not_read_what_the_host_takes(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(producer(ws, out))
    await out.take()
    with pytest.raises(TraceError, match="(?s)whose cells the host takes.*second channel"):
        pipe.submit(appending(ws, out)[0])


@on_engine(count_up)
async def test_a_channel_belongs_to_one_pipeline(hub):
    one, two, out = Pipeline(), Pipeline(), Channel([1], dtype.i32)
    one.submit(producer(WorkingSet(), out))
    with pytest.raises(InferletError, match="another pipeline"):
        two.submit(appending(WorkingSet(), out)[0])


@on_engine(count_up)
async def test_passes_of_one_pipeline_share_a_channel_in_submission_order(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32).named("tok")
    first, _ = appending(ws, [9, 9], greedy(tok))
    second, result = appending(ws, tok, greedy(tok))
    pipe.submit(first)
    pipe.submit(second)
    pipe.submit(second)
    assert [await result, await result] == [3, 4]
    assert hub.worker.sets_ever[0] == [9, 9, 2, 3]


@on_engine(count_up)
async def test_capacity_is_fixed_by_the_first_submit(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(2)
    pipe.submit(producer(ws, out))
    with pytest.raises(TraceError, match="is fixed"):
        out.capacity(5)


@on_engine(count_up)
async def test_a_token_that_is_none_is_told_with_the_line_that_made_it(hub):
    pipe, made = Pipeline(), Channel([1], dtype.i32).named("made")

    def make():
        made.put(constant([999]))

    pipe.submit(appending(WorkingSet(), [1], make)[0])
    fwd, result = appending(WorkingSet(), made, lambda: constant(1))
    pipe.submit(fwd)
    line = make.__code__.co_firstlineno + 1
    with pytest.raises(InferletError, match=f"test_channel.py:{line}: what is put on .*`made`"):
        await result


@on_engine()
async def test_a_channel_that_no_engine_holds_is_refused_where_it_is_made(hub):
    with pytest.raises(
        ValueError, match=r"a cell of u32\[1099511627776\] has 4,398,046,511,104 bytes"
    ):
        Channel([2**40], dtype.u32)
    assert Channel([2**31], dtype.bool).shape == (2**31,)
    with pytest.raises(ValueError, match="capacity 65537 of channel .* is 1 to 65536"):
        Channel([1], dtype.i32).capacity(65_537)
    with pytest.raises(ValueError, match="capacity 0 of channel"):
        Channel([1], dtype.i32).capacity(0)


@on_engine(count_up)
async def test_host_calls_inside_a_stage_are_trace_errors(hub):
    ws, pipe, channel = WorkingSet(), Pipeline(), Channel.from_([1])
    calls = [
        lambda: channel.set(1),
        lambda: channel.capacity(2),
        lambda: channel.take_scalar().send(None),
        lambda: pipe.submit(None),
        lambda: ws.fork(pipe),
    ]
    for call in calls:
        with pytest.raises(TraceError, match="inside a stage"):
            pipe.submit(appending(ws, [1], call)[0])


# ---- failures


@on_engine(count_up, faults={3: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised")})
async def test_cells_before_a_failed_fire_are_delivered_then_the_cause(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(5)
    fwd = producer(ws, out)
    for _ in range(4):
        pipe.submit(fwd)
    assert [await out.take_scalar() for _ in range(2)] == [1, 2]
    for call in (out.take, out.read):
        with pytest.raises(InferletError, match=r"fire 2 of pass 0 .*: a kernel raised"):
            await call()
    with pytest.raises(InferletError, match="a kernel raised"):
        pipe.submit(fwd)
    assert ws.folded() == 2


@on_engine(count_up, faults={1: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised")})
async def test_a_waiting_take_gets_the_cause_and_so_does_a_put(hub):
    ws, pipe = WorkingSet(), Pipeline()
    feed, out = Channel.from_([1]), Channel([1], dtype.i32)
    pipe.submit(appending(ws, feed, putting(out))[0])
    with pytest.raises(InferletError, match="a kernel raised"):
        await out.take()
    for call in (feed.put, feed.set):
        with pytest.raises(InferletError, match="a kernel raised"):
            call(1)


@on_engine(count_up)
async def test_cells_stay_takeable_after_close(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(2)
    fwd = producer(ws, out)
    pipe.submit(fwd)
    pipe.submit(fwd)
    pipe.close()
    assert [await out.take_scalar() for _ in range(2)] == [1, 2]


@on_engine(count_up)
async def test_a_dropped_channel_is_dropped_at_the_engine_after_its_pass(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(producer(ws, out))
    del out
    await settle()
    kinds = [type(command) for command in hub.commands if type(command).__name__.startswith("Drop")]
    assert kinds == [m.DropPass, m.DropChannel]
