"""run_ahead: an exact stop whatever is in flight (contract, 14.1)."""

import asyncio

import pytest

from inferlet import (
    Channel,
    Pipeline,
    WorkingSet,
    dtype,
    gather,
)
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import appending, count_up, greedy, on_engine, settle
from tests.inferlet.runs import decoding, history


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
