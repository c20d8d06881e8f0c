"""Explicit placement on the engine, to the last bit on the tiny model: fires that fail after they
have overwritten slots, sets that are suspended, folds of slots that were only reserved."""

import asyncio
import random

import pytest

from inferlet import (
    Channel,
    ForwardPass,
    InferletError,
    Pipeline,
    StateGeometry,
    WorkingSet,
    dtype,
    intrinsics,
    reduce_argmax,
)
from inferlet.testing import Client, run_with
from tests.worker import sdk_hub
from worker import changes, working_set
from worker.eta.executor import CompiledProgram
from worker.model.tiny import TinyModel
from worker.pages import NULL_PAGE

UNLUCKY = 13.0
ALL = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    def make(info, function):
        return TinyModel(vocab_size=info.output_vocab_size, page_size=4)

    monkeypatch.setattr(sdk_hub, "FunctionModel", make)


@pytest.fixture
def unlucky(monkeypatch):
    """A stage with this constant raises: after the rows were computed and written."""
    run = CompiledProgram.run

    def touchy(self, count, fronts, outputs, constants, earlier):
        if any((constant == UNLUCKY).any() for constant in constants):
            raise RuntimeError("unlucky")
        return run(self, count, fronts, outputs, constants, earlier)

    monkeypatch.setattr(CompiledProgram, "run", touchy)


def run(main, value=None, **changes):
    kind = type("Hub", (sdk_hub.WorkerHub,), changes)
    hub = kind(Client())
    seen = asyncio.run(run_with(hub, main, value))
    hub.real.state.check_integrity()
    return seen, hub


def placing(ws, tokens, slots, kv_len, fold=None, factor=1.0, positions=None):
    fwd = ForwardPass()
    fwd.embed(tokens)
    geometry = StateGeometry(
        positions=positions or slots, slots=slots, kv_len=[kv_len],
        fold=None if fold is None else [fold],
    )  # fmt: skip
    fwd.state([ws], geometry)
    return fwd, fwd.epilogue(lambda: intrinsics.output(0, "logits") * factor)


def folding(ws, tokens):
    fwd = ForwardPass()
    fwd.embed(tokens)
    fwd.state([ws], StateGeometry.folding())
    return fwd, fwd.epilogue(lambda: intrinsics.output(0, "logits"))


# ---- a fire that fails

#: Of a set with 5 frozen rows and a tail of 4: tokens, slots, kv_len and fold of the failing fire.
FAILING = {
    "the tail": ([9, 8, 7, 6], [5, 6, 7, 8], 9, ALL),
    "the tail's middle, and the rest is emptied": ([9, 8], [6, 7], 8, None),
    "slots beyond the end": ([9, 8], [12, 13], 14, None),
    "the tail and on to new pages": ([9] * 9, list(range(6, 15)), 15, 3),
    "only its fold": ([-1], [5], 9, 2),
}


async def after_failure(case: dict) -> list:
    """What a set shows once a fire on it has failed; of an empty case, none has."""
    ws, pipe = WorkingSet(), Pipeline()
    pipe.submit(folding(ws, [1, 2, 3, 4, 5])[0])
    first, result = placing(ws, [11, 12, 13, 14], [5, 6, 7, 8], 9)
    pipe.submit(first)
    await result
    ws.reserve(20)
    child = ws.fork(pipe) if case.get("fork") else None
    if case:
        tokens, slots, kv_len, fold = FAILING[case["name"]]
        bad, failing = placing(ws, tokens, slots, kv_len, fold, factor=UNLUCKY)
        pipe.submit(bad)
        pipe.submit(placing(ws, [3], [9], 10)[0])  # dropped with it
        with pytest.raises(InferletError, match="unlucky"):
            await failing
    seen = [ws.folded()]
    for held in [ws] if child is None else [ws, child]:
        own = Pipeline()
        for args in (([21], [9], 10), ([22], [7], 10, 1), ([23], [10], 11, ALL)):
            fwd, result = placing(held, *args)
            own.submit(fwd)
            seen.append((await result).tolist())
            seen.append(held.folded())
    return seen


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("name", FAILING)
def test_a_fire_that_fails_leaves_the_slots_that_it_has_overwritten(unlucky, name, fork):
    wanted, _ = run(after_failure, {})
    seen, hub = run(after_failure, {"name": name, "fork": fork})
    assert seen[: len(wanted)] == wanted
    if fork:
        assert seen[len(wanted) :] == wanted[1:]


# ---- memory pressure


async def guess_and_correct(seed: int) -> list:
    """Drafts of random tokens, of which the right ones are frozen; now and then with a hole."""
    choice, ws, pipe = random.Random(seed), WorkingSet(), Pipeline()
    prompt = [choice.randrange(1, 250) for _ in range(choice.randint(5, 9))]
    fwd, result = folding(ws, prompt)
    pipe.submit(fwd)
    logits, base, seen = await result, len(prompt), []
    for _ in range(4):
        row = [int(logits.argmax()), *(choice.randrange(250) for _ in range(choice.randint(0, 3)))]
        gap = choice.choice([0, 9, 9]) if len(row) == 1 else 0
        slots = [base + gap + place for place in range(len(row))]
        fwd, result = placing(ws, row, slots, slots[-1] + 1)
        pipe.submit(fwd)
        seen.append((await result).tolist())
        pipe.park()
        for _ in range(choice.randint(0, 9)):
            await asyncio.sleep(0)
        # The right token alone is written once more, where it belongs, and all else is dropped.
        fwd, result = placing(ws, row[:1], [base], base + 1, 1)
        pipe.submit(fwd)
        logits, base = await result, base + 1
        seen.append(logits.tolist())
        if choice.random() < 0.3:
            ws = ws.fork(pipe)
    return [seen, ws.folded()]


async def crowd(seeds: list[int]) -> list:
    return await asyncio.gather(*[guess_and_correct(seed) for seed in seeds])


def test_explicit_sets_show_under_pressure_what_they_show_alone(monkeypatch):
    suspended, suspend = [], working_set.WorkingSet.suspend

    def watched(self, swap):
        suspended.append(NULL_PAGE in self.pages)
        suspend(self, swap)

    monkeypatch.setattr(working_set.WorkingSet, "suspend", watched)
    seeds = list(range(6))
    alone = [run(crowd, [seed])[0][0] for seed in seeds]
    small = {"tenure_waves": 2, "idle_waves": 1, "prefix_cache": False}
    for overlap in (False, True):
        suspended.clear()
        seen, _ = run(crowd, seeds, num_pages=11, overlap=overlap, changes=small)
        assert seen == alone
        assert True in suspended and False in suspended, "with holes, and without"


async def overwriting_run(case: dict) -> list:
    """A run that overwrites slots 0, 4, … of twenty, stopped after `stop` fires of up to five. In its
    first callback, another sequence wants nearly all pages."""
    ws, pipe, other, own = WorkingSet(), Pipeline(), WorkingSet(), Pipeline()
    fwd, result = placing(ws, list(range(1, 21)), list(range(20)), 20)
    pipe.submit(fwd)
    await result
    at, token, slot = Channel.from_([0], dtype.u32), Channel.from_([5]), Channel([1], dtype.u32)
    over, count = ForwardPass(), 0
    over.embed(token)
    over.state([ws], StateGeometry(positions=slot, slots=slot, kv_len=[20]))

    @over.prologue
    def _():
        here = at.take()
        slot.put(here)
        at.put(here + 4)

    @over.epilogue
    def _():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best

    async def on_token(_) -> bool:
        nonlocal count
        count += 1
        if count == 1 and case["pressed"]:
            fwd, result = folding(other, [3] * 36)
            own.submit(fwd)
            await result
        return count < case["stop"]

    await pipe.run_ahead(over, 5, on_token)
    seen = []
    for slots, fold in (([20], None), ([21], ALL)):
        fwd, result = placing(ws, [9], slots, slots[0] + 1, fold)
        pipe.submit(fwd)
        seen.append((await result).tolist())
    return [count, seen, ws.folded()]


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_run_that_can_be_undone_is_suspended_with_what_it_has_overwritten(monkeypatch, stop):
    suspended, suspend = [], changes.suspend

    def watched(held):
        suspended.append(len(changes.kept(held)))
        suspend(held)

    monkeypatch.setattr(changes, "suspend", watched)
    wanted, _ = run(overwriting_run, {"pressed": False, "stop": stop})
    assert wanted[0] == stop and not suspended
    small = {"memory_grace": 0.2, "prefix_cache": False, "idle_waves": 0}
    got, _ = run(overwriting_run, {"pressed": True, "stop": stop}, num_pages=12, changes=small)
    assert got == wanted
    assert max(suspended) > 1, "nothing that a fire had overwritten was suspended"


# ---- reservations


kept: list[WorkingSet] = []  # beyond the end of their inferlet


async def fold_of_reserved(case: dict) -> list:
    """Slots that a prologue chooses below the reservation; how many are frozen is said, too."""
    ws, pipe = WorkingSet(), Pipeline()
    kept[:] = [ws]
    pipe.submit(folding(ws, [1, 2, 3])[0])
    ws.reserve(case["reserve"])
    first = case["first"]
    values = [first, first + 1], [first + 2], [case["fold"]]
    feeds = [Channel.from_(value, dtype.u32) for value in values]
    made = [Channel([len(value)], dtype.u32) for value in values]
    slots, length, fold = made
    fwd = ForwardPass()
    fwd.embed([7, 8])
    fwd.state([ws], StateGeometry(positions=slots, slots=slots, kv_len=length, fold=fold))

    @fwd.prologue
    def _():
        for feed, channel in zip(feeds, made):
            channel.put(feed.take() + 0)

    result = fwd.epilogue(lambda: reduce_argmax(intrinsics.output(0, "logits")))
    pipe.submit(fwd)
    try:
        await result
    except InferletError as error:
        return [str(error), ws.folded()]
    own = Pipeline()
    again, result = placing(ws, [9], [ws.folded()], ws.folded() + 1, ALL)
    own.submit(again)
    return [(await result).tolist(), ws.folded()]


@pytest.mark.parametrize("fold, folded", [(0, 3), (1, 4), (2, 5), (77, 5), (ALL, 5)])
def test_of_reserved_slots_those_are_frozen_that_were_filled(fold, folded):
    (seen, end), hub = run(fold_of_reserved, {"reserve": 100, "first": 3, "fold": fold})
    assert end == folded + 1
    (held,) = hub.real.state.processes[1].live_sets
    assert len(held.pages) == held.pool.pages_for(folded + 1)  # a reservation takes no memory
    kept.clear()
    rows = [1, 2, 3, 7, 8][:folded]
    assert seen == run(replayed, [*rows, 9])[0]


async def replayed(rows: list[int]) -> list:
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = folding(ws, rows)
    pipe.submit(fwd)
    return (await result).tolist()


def test_a_fold_may_not_reach_over_a_hole():
    (message, folded), _ = run(fold_of_reserved, {"reserve": 100, "first": 5, "fold": 4})
    assert "slot 3 is empty" in message and folded == 3


def test_a_slot_beyond_the_reservation_fails_the_fire():
    (message, folded), _ = run(fold_of_reserved, {"reserve": 4, "first": 3, "fold": 1})
    assert "has reserved 4" in message and folded == 3
