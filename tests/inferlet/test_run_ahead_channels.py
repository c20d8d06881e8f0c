"""run_ahead beside the host: set and take on a run's channels (contract, 10.4 and 14.1)."""

import asyncio

import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    WorkingSet,
    dtype,
    intrinsics,
    reduce_argmax,
)
from ipc import messages as m
from tests.inferlet.support import appending, count_up, greedy, on_engine, sent, settle
from tests.inferlet.runs import decoding, history


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
