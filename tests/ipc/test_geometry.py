"""Placement of rows: the vectors of the contract, and rules that hold for any pass."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.geometry import EMPTY, Explicit, GeometryError, Slots, fold_rows, place, visible

VECTORS = Path(__file__).resolve().parent.parent / "golden" / "vectors.json"
CASES = json.loads(VECTORS.read_text())["geometry"]
CONTEXT = 1024


def lane_of(case: dict) -> Slots:
    positions = tuple(case.get("positions", range(case["extent"])))
    plain = positions == tuple(range(case["extent"]))
    # Slots that the host knows are reserved by themselves.
    return Slots(case["folded"], case["extent"], 1 << 20, None if plain else positions)


def run_case(case: dict) -> dict:
    explicit = None
    if case["kind"] == "explicit":
        fields = (case[name] for name in ("positions", "slots", "kv_len"))
        explicit = Explicit(*fields, case.get("fold"))
    lanes = [lane_of(lane) for lane in case["lanes"]]
    placed = place(lanes, case["indptr"], case["tokens"], explicit, CONTEXT)
    count = len(case["tokens"])
    got = {"positions": [None] * count, "slots": [None] * count, "visible": [[]] * count}
    for lane in placed:
        for i, row in enumerate(lane.rows):
            mask = case["mask"][row] if "mask" in case else None
            got["positions"][row], got["slots"][row] = lane.positions[i], lane.slots[i]
            got["visible"][row] = visible(lane, i, mask)
    return {**got, "folded": [lane.after.folded for lane in placed]}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors_of_the_contract(case):
    if "error" in case["expect"]:
        with pytest.raises(GeometryError):
            run_case(case)
    else:
        assert run_case(case) == case["expect"]


@st.composite
def sets(draw: st.DrawFn) -> Slots:
    """Any working set that passes can make."""
    positions = draw(st.lists(st.integers(EMPTY, 12), max_size=9))
    while positions and positions[-1] == EMPTY:
        positions.pop()
    filled = positions.index(EMPTY) if EMPTY in positions else len(positions)
    folded = draw(st.integers(0, filled))
    plain = positions == list(range(len(positions)))
    return Slots(folded, len(positions), 16, None if plain else tuple(positions))


@st.composite
def passes(draw: st.DrawFn) -> tuple[Slots, Explicit, list[int]]:
    slots = draw(sets())
    count = draw(st.integers(1, 4))
    if draw(st.booleans()):
        first = draw(st.integers(slots.folded, slots.extent))
        at = list(range(first, first + count))
        places = [p + slots.next_position - first for p in at] if draw(st.booleans()) else at
    else:
        at = draw(st.lists(st.integers(0, 15), min_size=count, max_size=count))
        places = draw(st.lists(st.integers(0, 15), min_size=count, max_size=count))
    kv_len = draw(st.one_of(st.just(max(at) + 1), st.integers(0, 16)))
    fold = draw(st.one_of(st.none(), st.lists(st.integers(0, 20), min_size=1, max_size=1)))
    tokens = draw(st.lists(st.sampled_from([0, 0, 0, -1]), min_size=count, max_size=count))
    return slots, Explicit(places, at, [kv_len], fold), tokens


def naive(slots: Slots, explicit: Explicit, tokens: list[int]) -> tuple[dict, list, int]:
    """(position by slot afterwards, visible sets of the present rows, folded), word by word."""
    held = {s: p for s, p in enumerate(slots.stored) if p != EMPTY}
    rows = [i for i, token in enumerate(tokens) if token >= 0]
    kv_len, fold = explicit.kv_len[0], (explicit.fold or [0])[0]
    seen = []
    if rows:
        at = [explicit.slots[i] for i in rows]
        legal = all(slots.folded <= s < slots.reserved and s < kv_len for s in at)
        if not legal or len(set(at)) < len(at) or kv_len > slots.reserved:
            raise GeometryError("refused")
        held |= {explicit.slots[i]: explicit.positions[i] for i in rows}
        held = {s: p for s, p in held.items() if s < kv_len}
        seen = [sorted(s for s in held if held[s] <= explicit.positions[i]) for i in rows]
    extent = max(held, default=-1) + 1
    folded = min(slots.folded + fold, extent)
    if any(s not in held for s in range(folded)):
        raise GeometryError("refused")
    return held, seen, folded


@settings(max_examples=400, deadline=None)
@given(passes())
def test_a_pass_is_placed_as_the_contract_says_word_by_word(case):
    slots, explicit, tokens = case
    try:
        held, seen, folded = naive(slots, explicit, tokens)
    except GeometryError:
        with pytest.raises(GeometryError):
            place([slots], [0, len(tokens)], tokens, explicit, CONTEXT)
        return
    (placed,) = place([slots], [0, len(tokens)], tokens, explicit, CONTEXT)
    after = placed.after
    assert {s: p for s, p in enumerate(after.stored) if p != EMPTY} == held
    assert (after.folded, after.extent) == (folded, max(held, default=-1) + 1)
    assert (after.positions is None) == (list(after.stored) == list(range(after.extent)))
    assert [visible(placed, i) for i in range(len(placed.rows))] == seen
    before = {s: p for s, p in enumerate(slots.stored) if p != EMPTY}
    assert all(before.get(s) == held.get(s) for s in range(placed.kept))
    assert not any(s in before for s in range(max(placed.kept, slots.extent), 20))
    if placed.is_causal and seen:
        end, count = len(placed.stored), len(seen)
        assert seen == [list(range(end - count + j + 1)) for j in range(count)]


@settings(deadline=None)
@given(sets(), st.integers(0, 4))
def test_folding_is_the_explicit_append_that_freezes_everything(slots, count):
    first, at = slots.next_position, slots.extent
    explicit = Explicit(
        list(range(first, first + count)), list(range(at, at + count)), [at + count], [99]
    )
    slots = slots.reserve(99)
    try:
        folded = fold_rows(slots, range(count), CONTEXT)
    except GeometryError:  # a slot below is empty
        with pytest.raises(GeometryError):
            place([slots], [0, count], [0] * count, explicit, CONTEXT)
        return
    (placed,) = place([slots], [0, count], [0] * count, explicit, CONTEXT)
    assert (placed.after, list(placed.positions)) == (folded.after, list(folded.positions))
    assert list(placed.stored) == list(folded.stored)
