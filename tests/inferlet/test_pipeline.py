"""Submits and frames: order, all or nothing, close and park (contract, 14)."""

import asyncio

import pytest

from inferlet import (
    Channel,
    ForwardPass,
    InferletError,
    OutOfMemory,
    Pipeline,
    PipelineClosed,
    StateGeometry,
    WorkingSet,
    dtype,
    session,
)
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import appending, count_up, greedy, on_engine, putting, sent, settle


@on_engine(count_up)
async def test_everything_of_one_tick_leaves_in_one_frame(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1], putting(tok))[0])
    dec, result = appending(ws, tok, greedy(tok))
    pipe.submit(dec)
    assert hub.num_frames == 0
    await result
    assert hub.num_frames == 1


@on_engine(count_up)
async def test_passes_take_effect_in_the_order_of_the_calls(hub):
    ws, pipe = WorkingSet(), Pipeline()
    for token in (5, 6, 7):
        pipe.submit(appending(ws, [token])[0])
    await settle()
    assert hub.worker.sets_ever[0] == [5, 6, 7]
    assert [command.seq for command in sent(hub, m.Submit)] == [0, 1, 2]


@pytest.mark.parametrize("wrong", [None, 3, "pass", []])
def test_submit_takes_a_forward_pass(wrong):
    @on_engine()
    async def run(hub):
        with pytest.raises(TypeError, match="it takes a ForwardPass"):
            Pipeline().submit(wrong)

    run()


@on_engine(count_up)
async def test_a_pass_belongs_to_its_first_pipeline(hub):
    one, two, fwd = Pipeline(), Pipeline(), appending(WorkingSet(), [1])[0]
    one.submit(fwd)
    with pytest.raises(InferletError, match="belongs to another pipeline"):
        two.submit(fwd)


# ---- frames


@on_engine(count_up)
async def test_a_frame_is_so_many_submits_each_seeing_the_one_before(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pre, _ = appending(ws, [9, 9], putting(tok))
    dec, result = appending(ws, tok, greedy(tok))
    pipe.submit_frame([pre, None, dec, dec])
    assert [await result, await result] == [3, 4]
    assert hub.worker.sets_ever[0] == [9, 9, 2, 3]


@on_engine(count_up)
async def test_an_empty_frame_is_a_no_op(hub):
    pipe = Pipeline()
    pipe.submit_frame([])
    pipe.submit_frame([None, None])
    await settle()
    assert not sent(hub, m.Submit)


@on_engine(count_up)
async def test_a_frame_is_all_or_nothing(hub):
    ws, pipe = WorkingSet(), Pipeline()
    feed, out = Channel.from_([1]), Channel([1], dtype.i32)
    good, _ = appending(ws, [1], putting(out))
    bad, _ = appending(ws, feed)
    with pytest.raises(InferletError, match="will be empty"):
        pipe.submit_frame([good, bad, bad])
    with pytest.raises(InferletError, match="will be full"):
        pipe.submit_frame([good, good])
    await settle()
    assert not sent(hub, m.Submit, m.DefinePass, m.DefineChannel)
    assert (ws.folded(), feed._count, out._count) == (0, 1, 0)
    out.capacity(2)
    pipe.submit_frame([good, bad, good])
    assert [await out.take_scalar() for _ in range(2)] == [1, 3]


@on_engine(count_up)
async def test_a_frame_counts_its_own_context_and_results(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, _ = appending(ws, [1], greedy())
    with pytest.raises(InferletError, match="7 results"):
        pipe.submit_frame([fwd] * 8)
    long, _ = appending(ws, [1] * 2000)
    with pytest.raises(InferletError, match="reaches position 5999"):
        pipe.submit_frame([long] * 3)


# ---- close, park, drop


@on_engine(count_up)
async def test_a_closed_pipeline_refuses_submits_and_runs(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    pipe.submit(fwd)
    pipe.close()
    pipe.close()
    with pytest.raises(PipelineClosed, match="closed pipeline"):
        pipe.submit(fwd)
    with pytest.raises(PipelineClosed):
        pipe.submit_frame([])
    with pytest.raises(PipelineClosed):
        await pipe.run_ahead(fwd, 1, print)
    assert await result == 1  # accepted fires settle
    await settle()
    assert len(sent(hub, m.ClosePipeline)) == 1


@on_engine(count_up)
async def test_dropping_the_object_closes_it(hub):
    ws = WorkingSet()
    fwd, result = appending(ws, [1], greedy())
    Pipeline().submit(fwd)
    assert await result == 1
    assert len(sent(hub, m.ClosePipeline)) == 1
    assert not hub.runtime.pipelines


@on_engine(count_up)
async def test_park_is_a_hint_without_effect(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    pipe.park()
    pipe.submit(fwd)
    pipe.park()
    assert await result == 1
    pipe.close()
    pipe.park()
    assert len(sent(hub, m.Park)) == 2


# ---- failure


@on_engine(count_up, faults={2: Failure(ErrorCode.OUT_OF_MEMORY, "no pages")})
async def test_a_failed_pipeline_drops_later_fires_and_refuses_submits(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    for _ in range(3):
        pipe.submit(fwd)
    assert await result == 1
    with pytest.raises(OutOfMemory, match="fire 1 of pass 0 .*no pages"):
        await result
    with pytest.raises(OutOfMemory, match="no pages"):
        pipe.submit(fwd)
    with pytest.raises(OutOfMemory, match="no pages"):
        ws.fork(pipe)
    with pytest.raises(OutOfMemory, match="no pages"):
        await pipe.run_ahead(fwd, 1, print)
    assert hub.worker.sets_ever[0] == [1]


@on_engine(count_up)
async def test_every_await_and_call_fails_when_the_engine_is_gone(hub):
    ws, pipe, out = WorkingSet(), Pipeline(), Channel([1], dtype.i32).capacity(3)
    fwd, result = appending(ws, [1], greedy(out))
    hub.is_silent = True

    async def awaited():
        return await result

    pipe.submit(fwd)
    waiting = [
        asyncio.ensure_future(awaitable) for awaitable in (awaited(), out.take(), session.receive())
    ]
    await settle()
    hub.to_inferlet(m.Engine(Failure(ErrorCode.WORKER_LOST, "the worker was killed")))
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert type(error) is InferletError and "the worker was killed" in str(error)
    for call in (lambda: pipe.submit(fwd), lambda: Pipeline().submit(fwd)):
        with pytest.raises(InferletError, match="the engine failed"):
            call()


@on_engine(count_up)
async def test_the_engine_may_drop_the_process(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    hub.is_silent = True
    pipe.submit(fwd)
    await settle()
    hub.is_silent = False
    hub.say(m.Goodbye(Failure(ErrorCode.LIMIT, "too many pages")))
    with pytest.raises(InferletError, match="too many pages"):
        await result


@pytest.mark.parametrize(
    ("limit", "hint"),
    [("pipelines", "`close` pipelines"), ("channels", "less `capacity`"), ("", "keep fewer alive")],
)
def test_an_excess_of_the_process_is_worded_as_its_limit(limit, hint):
    @on_engine(count_up)
    async def run(hub):
        fwd, result = appending(WorkingSet(), [1], greedy())
        hub.is_silent = True
        Pipeline().submit(fwd)
        await settle()
        hub.is_silent = False
        hub.say(m.Goodbye(Failure(ErrorCode.LIMIT, "more than 7 at once", limit=limit)))
        with pytest.raises(InferletError) as error:
            await result
        text = str(error.value)
        assert text.startswith("more than 7 at once\n\nhint: ")
        assert hint in text and "engine failed" not in text

    run()


@on_engine(count_up)
async def test_two_pipelines_are_independent(hub):
    one, two = Pipeline(), Pipeline()
    a, first = appending(WorkingSet(), [1], greedy())
    b, second = appending(WorkingSet(), [1, 1], greedy())
    one.submit(a)
    two.submit(b)
    assert [await second, await first] == [2, 1]


def test_the_api_outside_of_an_inferlet_says_how_to_run_it():
    for make in (WorkingSet, Pipeline):
        with pytest.raises(InferletError, match="`pie run`"):
            make()
    fwd = ForwardPass()
    fwd.embed([1])
    with pytest.raises(TypeError):
        fwd.state([1], StateGeometry.folding())
