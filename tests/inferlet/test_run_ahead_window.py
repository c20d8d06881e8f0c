"""run_ahead: how far it runs ahead, what that costs, and what it refuses (contract, 14.1)."""

import asyncio

import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    TraceError,
    WorkingSet,
    constant,
    dtype,
)
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import appending, count_up, greedy, on_engine, sent, settle
from tests.inferlet.runs import decoding, history


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
