"""run_ahead of passes that place their rows: an exact stop wherever it is (contract, 12.2 and 14.1)."""

import asyncio

import pytest

from inferlet import (
    Channel,
    ForwardPass,
    Pipeline,
    StateGeometry,
    WorkingSet,
    dtype,
    min_elem,
    rem,
)
from tests.inferlet.support import greedy, on_engine, settle

LONGEST = 14
SLOTS = 4  # of the loop that overwrites


def mixing(tokens):
    """A model whose next token tells every token that it attends, and their order."""
    return (7 * sum((place + 1) * token for place, token in enumerate(tokens)) + 3) % 251


def growing(here):
    """The next slot; nothing beyond it."""
    return here, here + 1


def circling(here):
    """A window: the newest row takes the slot of the oldest."""
    return rem(here, SLOTS), min_elem(here + 1, SLOTS)


def placed_loop(ws, tok, at, where, fold, before=lambda: None, after=None):
    """A decode loop whose prologue says where each row goes."""
    place, slot, length = (Channel([1], dtype.u32) for _ in range(3))
    fwd = ForwardPass()

    @fwd.prologue
    def _():
        here = at.take()
        target, end = where(here)
        place.put(here + 0)
        slot.put(target)
        length.put(end)
        at.put(here + 1)
        before()

    fwd.embed(tok)
    fwd.state([ws], StateGeometry(positions=place, slots=slot, kv_len=length, fold=fold))
    return fwd, fwd.epilogue(after or greedy(tok))


def loop(where, fold):
    ws, tok, at = WorkingSet(), Channel.from_([5]), Channel.from_([0], dtype.u32)
    ws.reserve(LONGEST + 8)
    fwd, result = placed_loop(ws, tok, at, where, fold)
    return ws, tok, at, fwd, result


def whole_run(where, fold):
    """The tokens of a run that nobody stops, and what the slots hold after each of its fires."""
    tokens, states = [], []

    @on_engine(mixing)
    async def run(hub):
        ws, _, _, fwd, result = loop(where, fold)
        pipe = Pipeline()
        for _ in range(LONGEST):
            pipe.submit(fwd)
            tokens.append(await result)
            await settle(20)
            states.append((list(hub.worker.sets_ever[0]), ws.folded()))

    run()
    return tokens, states


CASES = [(growing, None), (growing, [1]), (growing, [0xFFFFFFFF]), (circling, None)]


@pytest.mark.parametrize("where, fold", CASES, ids=["tail", "folds one", "folds all", "window"])
@pytest.mark.parametrize("how", ["false", "raise", "cancel", "budget"])
@pytest.mark.parametrize("capacity", [2, 4, 7])
def test_a_stop_at_any_fire_leaves_the_slots_of_that_fire(where, fold, how, capacity):
    tokens, states = whole_run(where, fold)
    for last in range(1, LONGEST - 3):
        _stop_after(last, how, capacity, (where, fold), tokens, states)


def _stop_after(last, how, capacity, case, tokens, states):
    @on_engine(mixing, engine={"channel_capacity": capacity})
    async def run(hub):
        ws, tok, at, fwd, result = loop(*case)
        pipe, seen = Pipeline(), []

        async def on_token(token):
            seen.append(token)
            if len(seen) == last:
                if how == "raise":
                    raise KeyError("stop")
                if how == "cancel":
                    task.cancel()
                    await asyncio.sleep(0)
                return how != "false"

        budget = last if how == "budget" else LONGEST
        task = asyncio.create_task(pipe.run_ahead(fwd, budget, on_token))
        expected = {"raise": KeyError, "cancel": asyncio.CancelledError}.get(how)
        if expected is not None:
            with pytest.raises(expected):
                await task
        else:
            assert await task == last
        await settle()
        assert seen == tokens[:last]
        assert (hub.worker.sets_ever[0], ws.folded()) == states[last - 1]
        assert (tok._count, at._count) == (1, 1)
        for later in range(last, last + 3):
            pipe.submit(fwd)
            assert await result == tokens[later]
        await settle()
        assert (hub.worker.sets_ever[0], ws.folded()) == states[last + 2]

    run()


@pytest.mark.parametrize("last", range(1, 9))
@pytest.mark.parametrize("where", [growing, circling])
def test_a_set_in_mid_run_fires_the_next_ones_again_where_they_were(last, where):
    @on_engine(mixing)
    async def run(hub):
        knob, row = Channel.from_([5]), Channel([1], dtype.i32)
        ws, at, seen = WorkingSet(), Channel.from_([0], dtype.u32), []
        ws.reserve(LONGEST + 8)

        def on_token(token):
            seen.append(token)
            if len(seen) == last:
                knob.set([100])

        fwd, _ = placed_loop(ws, row, at, where, None, lambda: row.put(knob.read() + 0), greedy())
        assert await Pipeline().run_ahead(fwd, LONGEST, on_token) == LONGEST
        await settle()
        rows = [5] * last + [100] * (LONGEST - last)
        attended = [rows[: end + 1] for end in range(LONGEST)]
        if where is circling:
            attended = [tokens[-SLOTS:] for tokens in attended]
        assert seen == [mixing(tokens) for tokens in attended]
        held = hub.worker.sets_ever[0]
        assert sorted(held) == sorted(rows if where is growing else rows[-SLOTS:])

    run()
