"""run_ahead: several fires in flight, and an exact stop whatever is in flight (contract, 14.1)."""

import asyncio
import functools

import numpy as np
import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    TraceError,
    WorkingSet,
    constant,
    dtype,
    gather,
    intrinsics,
    reduce_argmax,
)
from inferlet.runtime import run
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import appending, count_up, greedy, on_engine, putting, sent, settle


def decoding(ws, tok, *channels):
    """A decode loop: embeds the last token, puts the next."""

    def step():
        return greedy(tok, *channels)()

    return appending(ws, tok, step)


def history(hub, number=0):
    return hub.worker.sets_ever[number]


# ---- what on_token gets and gives


@on_engine(count_up)
async def test_on_token_that_awaits_a_later_fire_of_its_run_fails_at_once(hub):
    ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
    dec, result = decoding(ws, tok, out.capacity(4))

    async def takes_twice(t):
        assert await out.take() == t
        await out.take()

    async def awaits_its_result(t):
        await out.take()
        await result

    for on_token in (takes_twice, awaits_its_result):
        with pytest.raises(InferletError, match="waits for a later fire of that run"):
            await asyncio.wait_for(pipe.run_ahead(dec, 4, on_token), 60)
    assert ws.folded() == 2


@on_engine(count_up)
async def test_a_task_made_by_on_token_may_await_later_fires(hub):
    ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
    dec, _ = decoding(ws, tok, out.capacity(4))
    tasks = []

    async def take():
        return int(await out.take())

    async def on_token(t):
        tasks.append(asyncio.ensure_future(take()))
        tasks.append(asyncio.ensure_future(take()))
        await asyncio.sleep(0)

    assert await pipe.run_ahead(dec, 4, on_token) == 4
    assert await asyncio.gather(*tasks[:4]) == [1, 2, 3, 4]
    for extra in await asyncio.gather(*tasks[4:], return_exceptions=True):
        assert isinstance(extra, InferletError)


async def await_task(task):
    await task


async def await_with_others(task):
    await asyncio.gather(task, asyncio.sleep(0))


async def await_in_a_group(task):
    async def pass_on():
        await task

    async with asyncio.TaskGroup() as group:
        group.create_task(pass_on())


async def await_by_wait(task):
    await asyncio.wait([task])
    task.result()


async def await_with_a_timeout(task):
    await asyncio.wait_for(task, 60)


WAYS = (await_task, await_with_others, await_in_a_group, await_by_wait, await_with_a_timeout)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["channel", "result"])
def test_on_token_that_awaits_a_task_that_waits_for_the_run_fails(monkeypatch, way, what):
    monkeypatch.setattr(run, "STANDSTILL_SECONDS", 0.01)

    @on_engine(count_up)
    async def test(hub):
        ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
        dec, result = decoding(ws, tok, out.capacity(4))

        async def take_two():
            for _ in range(2):
                await (result if what == "result" else out.take())

        async def on_token(*_):
            await way(asyncio.ensure_future(take_two()))

        with pytest.raises((InferletError, ExceptionGroup)) as raised:
            await asyncio.wait_for(pipe.run_ahead(dec, 4, on_token), 20)
        error = raised.value
        if isinstance(error, ExceptionGroup):
            (error,) = error.exceptions
        assert "waits for a later fire of that run" in str(error)
        assert ws.folded() == 1

    test()


def test_on_token_may_await_a_task_that_waits_for_the_run_and_for_something_else(monkeypatch):
    """Whoever gives that goes on: what waits for the run is not touched."""
    monkeypatch.setattr(run, "STANDSTILL_SECONDS", 0.005)

    @on_engine(count_up)
    async def test(hub):
        ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
        dec, _ = decoding(ws, tok, out.capacity(4))
        taking, done = [], asyncio.Event()

        async def take():
            return [int(await out.take()) for _ in range(3)]

        async def on_token(t):
            if not taking:
                taking.append(asyncio.ensure_future(take()))
                asyncio.get_running_loop().call_later(0.05, done.set)
                await asyncio.wait([taking[0], asyncio.ensure_future(done.wait())],
                                   return_when=asyncio.FIRST_COMPLETED)

        assert await pipe.run_ahead(dec, 3, on_token) == 3
        assert await taking[0] == [1, 2, 3]

    test()


@on_engine(count_up)
async def test_on_token_is_called_once_a_fire_in_order(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    assert await pipe.run_ahead(dec, 20, seen.append) == 20
    assert seen == list(range(1, 21))
    assert (ws.folded(), history(hub)) == (20, list(range(20)))


@on_engine(count_up)
async def test_on_token_may_be_async(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)

    async def on_token(t):
        await asyncio.sleep(0)
        seen.append(t)
        return t < 7

    assert await pipe.run_ahead(dec, 20, on_token) == 7
    assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("value, stops", [
    (False, True), (np.False_, True), (None, False), (0, False), ([], False), (True, False),
    (np.True_, False), (np.int32(0), False), ("", False),
])  # fmt: skip
def test_false_alone_stops(value, stops):
    @on_engine(count_up)
    async def run(hub):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        assert await Pipeline().run_ahead(dec, 5, lambda t: value) == (1 if stops else 5)

    run()


@on_engine(count_up)
async def test_a_value_goes_to_whatever_takes_a_positional_argument(hub):
    class Callee:
        def __call__(self, t):
            seen.append(t)

    def with_default(t=None):
        seen.append(t)

    def with_star(*args):
        seen.append(args)

    seen = []
    partial = functools.partial(lambda a, t: seen.append(t), 0)
    for callee in (Callee(), with_default, with_star, partial):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        await Pipeline().run_ahead(dec, 1, callee)
    assert seen == [1, 1, (1,), 1]


@on_engine(count_up)
async def test_without_an_argument_on_token_takes_what_it_wants(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(7)
    dec, result = decoding(ws, tok, out)
    seen = []

    async def on_token():
        seen.append((await out.take_scalar(), await result))

    assert await pipe.run_ahead(dec, 10, on_token) == 10
    assert seen == [(i, i) for i in range(1, 11)]


@on_engine(count_up)
async def test_a_result_that_on_token_did_not_await_is_dropped(hub):
    ws, pipe, tok, calls = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, result = decoding(ws, tok)
    assert await pipe.run_ahead(dec, 20, lambda: calls.append(1)) == 20
    with pytest.raises(InferletError, match="nothing to await"):
        await result
    pipe.submit(dec)
    assert (await result, len(calls)) == (21, 20)


@on_engine(count_up)
async def test_results_before_the_run_are_kept(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, result = decoding(ws, tok)
    pipe.submit(dec)
    pipe.submit(dec)
    await pipe.run_ahead(dec, 5, lambda t: seen.append(t))
    assert ([await result, await result], seen) == ([1, 2], [3, 4, 5, 6, 7])


@on_engine(count_up)
async def test_without_an_epilogue_value_on_token_gets_nothing(hub):
    ws, pipe, tok, calls = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = appending(ws, tok, putting(tok))
    assert await pipe.run_ahead(dec, 3, lambda *args: calls.append(args)) == 3
    assert calls == [()] * 3


@pytest.mark.parametrize("budget", [0, -1, np.int64(0)])
def test_no_budget_returns_at_once(budget):
    @on_engine(count_up)
    async def run(hub):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        assert await Pipeline().run_ahead(dec, budget, print) == 0
        await settle()
        assert not sent(hub, m.DefinePass, m.RunAhead)

    run()


@on_engine(count_up)
async def test_wrong_arguments_are_type_errors(hub):
    pipe, (dec, _) = Pipeline(), decoding(WorkingSet(), Channel.from_([0]))
    for arguments in ((dec, 1.5, print), (dec, 1, None), (None, 1, print), (dec, True, print)):
        with pytest.raises(TypeError):
            await pipe.run_ahead(*arguments)


# ---- exact stop


@pytest.mark.parametrize("capacity", [2, 3, 4, 7, 9])
@pytest.mark.parametrize("how", ["false", "raise", "cancel", "budget"])
def test_state_after_a_stop_is_that_of_the_last_delivered_fire(capacity, how):
    for last in range(1, 12):
        stop_after(last, how, capacity)


def stop_after(last, how, capacity):
    @on_engine(count_up, engine={"channel_capacity": capacity})
    async def run(hub):
        ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
        feed = Channel([1], dtype.i32).capacity(20)
        for value in range(20):
            feed.put(100 + value)

        def step():
            token = greedy(tok)()
            return token, gather(feed.take(), 0)

        dec, result = appending(ws, tok, step)
        seen = []

        async def on_token(pair):
            seen.append(pair)
            if len(seen) == last:
                if how == "raise":
                    raise KeyError("stop")
                if how == "cancel":
                    run.cancel()
                    await asyncio.sleep(0)
                return how != "false"

        budget = last if how == "budget" else 15
        run = asyncio.create_task(pipe.run_ahead(dec, budget, on_token))
        expected = {"raise": KeyError, "cancel": asyncio.CancelledError}.get(how)
        if expected:
            with pytest.raises(expected):
                await run
        else:
            assert await run == last
        assert ws.folded() == last
        assert (tok._count, feed._count) == (1, 20 - last)
        # The pipeline is open, drained and reusable, and nobody waited for the worker.
        pipe.submit(dec)
        assert await result == (last + 1, 100 + last)
        assert history(hub) == list(range(last + 1))
        await settle()
        assert (ws.folded(), ws._num_unsettled, len(pipe._state.fires)) == (last + 1, 0, 0)

    run()


@on_engine(count_up)
async def test_a_run_really_runs_ahead_and_is_undone(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    dec, _ = decoding(ws, tok)
    await pipe.run_ahead(dec, 100, lambda t: False)
    await settle()
    assert hub.num_fired > 1 and history(hub) == [0]


@on_engine(count_up)
async def test_cancelled_before_the_first_fire_nothing_has_happened(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    dec, result = decoding(ws, tok)
    task = asyncio.create_task(pipe.run_ahead(dec, 9, print))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ws.folded() == 0
    pipe.submit(dec)
    assert (await result, history(hub)) == (1, [0])


@on_engine(count_up)
async def test_one_run_follows_another(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    for last in (3, 4, 9, 10, 30):
        await pipe.run_ahead(dec, 100, lambda t, last=last: seen.append(t) or t < last)
    await settle()
    assert seen == list(range(1, 31))
    assert history(hub) == list(range(30))


@on_engine(count_up)
async def test_folded_in_on_token_is_that_of_the_delivered_fire(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    await pipe.run_ahead(dec, 9, lambda t: seen.append(ws.folded()))
    assert seen == list(range(1, 10))


@on_engine(count_up, faults={5: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised")})
async def test_a_failure_beyond_the_stop_never_happened(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    dec, result = decoding(ws, tok)
    assert await pipe.run_ahead(dec, 100, lambda t: t < 3) == 3
    pipe.submit(dec)
    assert await result == 4


# ---- window and cost


@on_engine(count_up)
async def test_a_steady_run_sends_one_credit_every_half_window(hub):
    dec, _ = decoding(WorkingSet(), Channel.from_([0]))
    await Pipeline().run_ahead(dec, 200, lambda t: None)
    (start,) = sent(hub, m.RunAhead)
    credits = sent(hub, m.Credit)
    assert (start.budget, start.credits) == (200, 6)
    assert {credit.fires for credit in credits[:-1]} == {3}
    assert start.credits + sum(credit.fires for credit in credits) == 200
    assert not sent(hub, m.Stop)


@pytest.mark.parametrize("ring", [1, 2, 3, 7, 20])
def test_the_window_is_bounded_by_host_read_rings(ring):
    @on_engine(count_up)
    async def run(hub):
        tok, out = Channel.from_([0]), Channel([1], dtype.i32).capacity(ring)
        dec, _ = decoding(WorkingSet(), tok, out)
        seen = []

        async def on_token():
            seen.append(await out.take_scalar())

        assert await Pipeline().run_ahead(dec, 30, on_token) == 30
        assert seen == list(range(1, 31))
        assert sent(hub, m.RunAhead)[0].credits == min(6, ring)

    run()


@on_engine(count_up)
async def test_a_ring_that_nobody_takes_from_ends_the_run_with_its_name(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(3).named("out")
    dec, _ = decoding(ws, tok, out)
    seen = []
    with pytest.raises(InferletError, match="(?s)`out`.*will be full"):
        await pipe.run_ahead(dec, 9, seen.append)
    assert (seen, ws.folded()) == ([1, 2, 3], 3)
    assert [await out.take_scalar() for _ in range(3)] == [1, 2, 3]
    assert await pipe.run_ahead(dec, 2, seen.append) == 2


@on_engine(count_up)
async def test_a_host_written_ring_that_nobody_fills_ends_the_run_with_its_name(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel.from_([5]).capacity(4).named("feed")
    feed.put(6)
    fwd, _ = appending(ws, feed, greedy())
    seen = []
    with pytest.raises(InferletError, match="(?s)`feed`.*will be empty"):
        await pipe.run_ahead(fwd, 9, seen.append)
    assert (seen, history(hub)) == ([1, 2], [5, 6])


@on_engine(count_up)
async def test_puts_in_on_token_keep_a_host_fed_run_going(hub):
    ws, pipe, feed, seen = WorkingSet(), Pipeline(), Channel.from_([50]), []
    fwd, _ = appending(ws, feed, greedy())

    def on_token(t):
        seen.append(t)
        if len(seen) < 8:
            feed.put(50 + len(seen))

    assert await pipe.run_ahead(fwd, 8, on_token) == 8
    assert history(hub) == list(range(50, 58))


@on_engine(count_up)
async def test_puts_in_advance_are_used_in_order(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(9)
    for token in range(50, 59):
        feed.put(token)
    fwd, result = appending(ws, feed, greedy())
    assert await pipe.run_ahead(fwd, 9, lambda t: t < 4) == 4
    feed.put(70)
    for _ in range(6):
        pipe.submit(fwd)
    assert [await result for _ in range(6)] == [5, 6, 7, 8, 9, 10]
    assert history(hub) == [*range(50, 59), 70]


@on_engine(count_up, info={"context_length": 8})
async def test_the_context_ends_a_run_after_what_fits(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    with pytest.raises(InferletError, match="reaches position 8"):
        await pipe.run_ahead(dec, 99, seen.append)
    await settle()
    assert seen == list(range(1, 9))
    assert sent(hub, m.Stop)


# ---- set during a run


@on_engine(lambda tokens: 0)
async def test_set_acts_on_the_fire_after_the_delivered_one(hub):
    ws, pipe, tok, knob = WorkingSet(), Pipeline(), Channel.from_([0]), Channel.from_(10)
    tally = Channel.from_(0)

    def step():
        total = tally.take() + knob.read()
        tally.put(total)
        tok.put(reduce_argmax(intrinsics.output(0, "logits")))
        return total

    dec, _ = appending(ws, tok, step)
    seen = []

    def on_token(total):
        seen.append(total)
        if len(seen) in (2, 5):
            knob.set(1000 * len(seen))

    assert await pipe.run_ahead(dec, 7, on_token) == 7
    assert seen == [10, 20, 2020, 4020, 6020, 11020, 16020]
    assert ws.folded() == len(history(hub)) == 7


@on_engine(count_up)
async def test_set_of_a_channel_that_the_run_does_not_use_undoes_nothing(hub):
    ws, pipe, tok, knob = WorkingSet(), Pipeline(), Channel.from_([0]), Channel.from_(10)
    other, result = appending(WorkingSet(), [1], lambda: knob.read() + 0)
    pipe.submit(other)
    dec, _ = decoding(ws, tok)
    await pipe.run_ahead(dec, 9, lambda t: knob.set(t))
    assert not sent(hub, m.Stop)
    pipe.submit(other)
    assert [await result, await result] == [10, 9]


@on_engine(count_up)
async def test_set_of_a_staged_cell_during_a_run(hub):
    ws, pipe, feed, seen = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(6), []
    for token in range(50, 56):
        feed.put(token)
    fwd, _ = appending(ws, feed, greedy())

    def on_token(t):
        seen.append(t)
        if t == 2:
            feed.set(99)

    assert await pipe.run_ahead(fwd, 6, on_token) == 6
    assert history(hub) == [50, 51, 99, 53, 54, 55]


# ---- takes during a run


@on_engine(count_up)
async def test_a_take_gives_only_cells_of_delivered_fires(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(7)
    dec, _ = decoding(ws, tok, out)
    order = []

    async def listen():
        while True:
            order.append(("cell", await out.take_scalar()))

    listener = asyncio.create_task(listen())
    with pytest.raises(InferletError):
        await listener  # nothing fills it yet

    async def on_token(t):
        order.append(("token", t))
        if t == 1:
            asyncio.create_task(collect())
        await asyncio.sleep(0)

    async def collect():
        with pytest.raises(InferletError, match="nothing will fill"):
            await listen()

    await pipe.run_ahead(dec, 12, on_token)
    await settle()
    for i in range(1, 13):
        assert order.index(("token", i)) < order.index(("cell", i))
    assert [v for kind, v in order if kind == "cell"] == list(range(1, 13))


@pytest.mark.parametrize("first", range(1, 9))
@pytest.mark.parametrize("stop", [True, False])
def test_watching_in_mid_run_gives_every_delivered_cell_once(first, stop):
    @on_engine(count_up)
    async def run(hub):
        ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
        out = Channel([1], dtype.i32).capacity(20)
        dec, _ = decoding(ws, tok, out)
        taken = []

        async def on_token(t):
            if t >= first:
                taken.append(await out.take_scalar())
            return not (stop and t == first)

        count = await pipe.run_ahead(dec, 10, on_token)
        assert count == (first if stop else 10)
        pipe.submit(dec)
        while len(taken) <= count:
            taken.append(await out.take_scalar())
        assert taken == list(range(1, count + 2))
        with pytest.raises(InferletError, match="nothing will fill"):
            await out.take()

    run()


@on_engine(count_up)
async def test_cells_of_undone_fires_never_reach_the_host(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(20)
    dec, _ = decoding(ws, tok, out)
    taken = []

    async def on_token(t):
        taken.append(await out.take_scalar())
        return t % 3 != 0

    for _ in range(4):
        assert await pipe.run_ahead(dec, 50, on_token) == 3
    await settle()
    assert taken == list(range(1, 13))
    assert history(hub) == list(range(12))


@on_engine(count_up)
async def test_a_taker_left_waiting_by_the_end_of_a_run_fails(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(20)
    dec, _ = decoding(ws, tok, out)
    takers = []

    async def on_token(t):
        if t == 1:
            takers.extend(asyncio.create_task(out.take_scalar()) for _ in range(3))
            await asyncio.sleep(0)
        return t < 2

    await pipe.run_ahead(dec, 50, on_token)
    one, two, error = await asyncio.gather(*takers, return_exceptions=True)
    assert (one, two) == (1, 2) and "nothing will fill" in str(error)


@pytest.mark.parametrize("delivered", range(1, 9))
def test_cells_that_come_before_word_of_their_fires_are_matched(delivered):
    @on_engine(count_up, cells_first=True)
    async def run(hub):
        ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
        out = Channel([1], dtype.i32).capacity(20)
        dec, _ = decoding(ws, tok, out)
        taken = []

        async def on_token(t):
            if t >= 2:
                taken.append(await out.take_scalar())
            return t < delivered

        assert await pipe.run_ahead(dec, 20, on_token) == delivered
        pipe.submit(dec)
        while len(taken) <= delivered:
            taken.append(await out.take_scalar())
        assert taken == list(range(1, delivered + 2))

    run()


@on_engine(count_up)
async def test_set_and_take_on_a_full_ring_in_one_on_token(hub):
    ws, pipe, tok, knob = WorkingSet(), Pipeline(), Channel.from_([0]), Channel.from_(1)
    out = Channel((), dtype.i32).capacity(2)

    def step():
        greedy(tok)()
        out.put(knob.read() * 1)

    dec, _ = appending(ws, tok, step)
    taken = []

    async def on_token():
        if ws.folded() == 1:
            return  # leaves its cell: one more fills the ring
        knob.set(ws.folded())
        taken.append(await out.take_scalar())

    assert await pipe.run_ahead(dec, 6, on_token) == 6
    taken.append(await out.take_scalar())
    assert taken == [1, 1, 2, 3, 4, 5]


# ---- refusals and failures


@on_engine(count_up)
async def test_submits_forks_and_runs_during_a_run_are_refused(hub):
    ws, pipe, tok, errors = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    other, _ = appending(WorkingSet(), [1])

    async def on_token(t):
        for call in (
            lambda: pipe.submit(other),
            lambda: pipe.submit_frame([other]),
            lambda: ws.fork(pipe),
            lambda: pipe.run_ahead(dec, 1, print).send(None),
            lambda: ws.fork(Pipeline()),
        ):
            with pytest.raises(InferletError, match="during its `run_ahead`|busy"):
                call()
            errors.append(1)
        return False

    await pipe.run_ahead(dec, 9, on_token)
    assert len(errors) == 5
    ws.fork(pipe)
    pipe.submit(other)


@on_engine(count_up)
async def test_a_run_that_submit_would_refuse_raises_and_changes_nothing(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    dec, result = decoding(ws, tok)
    with pytest.raises(InferletError, match="will be empty"):
        await pipe.run_ahead(dec, 9, print)
    tok.put(0)
    pipe.submit(dec)
    assert await result == 1


@on_engine(count_up, faults={4: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised", "epilogue", 0)})
async def test_a_failed_fire_comes_after_the_fires_before_it(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    with pytest.raises(InferletError, match=r"(?s)fire 3 of pass 0 .*a kernel raised.*support.py"):
        await pipe.run_ahead(dec, 9, seen.append)
    assert (seen, ws.folded(), history(hub)) == ([1, 2, 3], 3, [0, 1, 2])
    with pytest.raises(InferletError, match="a kernel raised"):
        pipe.submit(dec)
    rest, result = appending(ws, [7], greedy())
    Pipeline().submit(rest)
    assert await result == 4


@on_engine(count_up)
async def test_a_run_ends_with_the_engine(hub):
    dec, _ = decoding(WorkingSet(), Channel.from_([0]))

    def on_token(t):
        if t == 2:
            hub.to_inferlet(m.Engine(Failure(ErrorCode.WORKER_LOST, "the worker was killed")))

    with pytest.raises(InferletError, match="the worker was killed"):
        await Pipeline().run_ahead(dec, 50, on_token)


@on_engine(count_up)
async def test_close_during_a_run_takes_effect_after_it(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)

    def on_token(t):
        seen.append(t)
        pipe.close()

    assert await pipe.run_ahead(dec, 9, on_token) == 9
    await settle()
    assert type(hub.commands[-1]) is m.ClosePipeline and not hub.runtime.pipelines


@on_engine(count_up)
async def test_run_ahead_inside_a_stage_is_a_trace_error(hub):
    ws, pipe = WorkingSet(), Pipeline()
    dec, _ = decoding(ws, Channel.from_([0]))
    fwd, _ = appending(ws, [1], lambda: pipe.run_ahead(dec, 1, print).send(None))
    with pytest.raises(TraceError, match="inside a stage"):
        pipe.submit(fwd)


@on_engine(count_up)
async def test_absent_rows_in_a_run_do_not_count(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0, -1])
    flip = Channel.from_(0)

    def step():
        flip.put(1 - flip.take())
        tok.put(constant([3, -1], dtype.i32))

    dec, _ = appending(ws, tok, step)
    lengths = []
    await pipe.run_ahead(dec, 5, lambda: lengths.append(ws.folded()))
    assert (lengths, history(hub)) == ([1, 2, 3, 4, 5], [0, 3, 3, 3, 3])


@on_engine(count_up)
async def test_several_runs_at_once_do_not_mix(hub):
    async def one(start):
        tok, seen = Channel.from_([start]), []
        dec, _ = decoding(WorkingSet(), tok)
        await Pipeline().run_ahead(dec, 30, lambda t: seen.append(t) or t < 20 + start)
        return seen

    for start, seen in enumerate(await asyncio.gather(*[one(i) for i in range(4)])):
        assert seen == list(range(1, 21 + start))
