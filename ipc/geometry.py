"""Where the rows of one pass go and what they see: pure functions of the slots (contract, 12).

The SDK checks submits with them, the worker places fires, and the fake engine does both. Knows slots
and positions, never pages. A lane whose rows would break a rule raises GeometryError.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ipc.errors import ErrorCode, Failure

EMPTY = -1  # the position of a slot that holds no row
FREEZE_ALL = 0xFFFFFFFF


# What to do, by the port whose values break a rule.
HINTS = {
    "positions": "place rows below `model.context_length()`",
    "slots": "write each slot once, from `folded()` on, below `kv_len` and the end of `reserve`",
    "kv_len": "take a `kv_len` above all slots that are written, and `reserve` as many on the host",
    "fold": "freeze no further than slots are filled without a gap",
    "indptr": "give the first row of each lane and then the number of rows, such as [0, 2, 5]",
    "readout": "read rows of this pass, from each lane as many as at its first submit",
    "mask": "give the mask a column for each slot of the longest lane, its new rows included",
    "tokens": "end the sequence earlier, or fork it before it is too long",
}


class GeometryError(Exception):
    """What the pass asks of a working set is not possible. `ports`: whose values are wrong."""

    def __init__(self, what: str, *ports: str) -> None:
        super().__init__(what)
        self.ports = ports

    @property
    def hint(self) -> str:
        return HINTS[self.ports[0]]

    def as_failure(self) -> Failure:
        return Failure(ErrorCode.GEOMETRY, str(self), ports=self.ports)


class Slots(NamedTuple):
    """One working set: `[0, folded)` is frozen, `extent` is one past the last filled slot."""

    folded: int = 0
    extent: int = 0
    reserved: int = 0  # slots below it may be written
    positions: tuple[int, ...] | None = None  # of `[0, extent)`; None: every slot holds its number

    @property
    def stored(self) -> Sequence[int]:
        """The position in each slot of `[0, extent)`, EMPTY where there is no row."""
        return range(self.extent) if self.positions is None else self.positions

    @property
    def next_position(self) -> int:
        return self.extent if self.positions is None else max(self.positions, default=-1) + 1

    def reserve(self, end: int) -> "Slots":
        return self._replace(reserved=max(self.reserved, end))


class Explicit(NamedTuple):
    """The ports of an explicit placement: entries for each row, or for each lane."""

    positions: Sequence[int]
    slots: Sequence[int]
    kv_len: Sequence[int]
    fold: Sequence[int] | None = None


class Placed(NamedTuple):
    """The present rows of one lane, and its working set once the pass is committed."""

    rows: Sequence[int]  # of the pass
    positions: Sequence[int]  # of each of these rows
    slots: Sequence[int]
    stored: Sequence[int]  # positions in the slots below `kv_len`, up to the last filled one
    after: Slots
    kept: int  # slots below it held the same row before: others were written or emptied
    is_causal: bool  # each of the n rows attends the slots up to its own; they are the last n


def place(
    lanes: Sequence[Slots],
    indptr: Sequence[int],
    tokens: Sequence[int],
    explicit: Explicit | None,
    context: int,
) -> list[Placed]:
    """Every lane of one pass; `tokens` below zero are absent rows. None: folding geometry."""
    if explicit is not None:
        check_sizes(explicit, indptr)
    placed = []
    for lane, ((start, end), slots) in enumerate(zip(pairwise(indptr), lanes, strict=True)):
        rows: Sequence[int] = range(start, end)
        if end > start and min(tokens[start:end]) < 0:
            rows = [row for row in rows if tokens[row] >= 0]
        if explicit is None:
            placed.append(fold_rows(slots, rows, context))
        else:
            placed.append(place_rows(slots, rows, explicit, lane, context))
    return placed


def check_sizes(explicit: Explicit, indptr: Sequence[int]) -> None:
    num_rows, num_lanes = indptr[-1], len(indptr) - 1
    for name, wanted in (("positions", num_rows), ("slots", num_rows), ("kv_len", num_lanes)):
        if len(getattr(explicit, name)) != wanted:
            given = len(getattr(explicit, name))
            raise GeometryError(f"`{name}` has {given} entries; the pass needs {wanted}", name)
    if explicit.fold is not None and len(explicit.fold) != num_lanes:
        given = len(explicit.fold)
        raise GeometryError(f"`fold` has {given} entries; the pass needs {num_lanes}", "fold")


def fold_rows(slots: Slots, rows: Sequence[int], context: int) -> Placed:
    """Folding: the rows are appended, and everything is frozen."""
    first, end = slots.next_position, slots.extent + len(rows)
    if rows and first + len(rows) > context:
        last = first + len(rows) - 1
        raise GeometryError(f"position {last} is beyond the model's context of {context}", "tokens")
    positions = range(first, first + len(rows))
    stored = slots.stored if slots.positions is None else (*slots.positions, *positions)
    if slots.positions is None:
        after = Slots(end, end, max(slots.reserved, end))
        stored = range(end)
    else:
        _check_filled(stored, slots.folded, end)
        after = Slots(end, end, max(slots.reserved, end), stored)
    is_causal = slots.positions is None or EMPTY not in slots.positions
    return Placed(rows, positions, range(slots.extent, end), stored, after, slots.extent, is_causal)


def place_rows(
    slots: Slots, rows: Sequence[int], explicit: Explicit, lane: int, context: int
) -> Placed:
    """Explicit placement of one lane, by the four steps of the contract (12.2)."""
    kv_len = explicit.kv_len[lane]
    fold = explicit.fold[lane] if explicit.fold is not None else 0
    if not rows:
        return _only_fold(slots, fold, min(kv_len, slots.extent))
    at = [explicit.slots[row] for row in rows]
    positions = [explicit.positions[row] for row in rows]
    check_rows(at, positions, kv_len, context)
    if min(at) < slots.folded:
        raise GeometryError(
            f"slot {min(at)} is frozen: the first {slots.folded} slots of lane {lane} are", "slots"
        )
    if max(kv_len, max(at) + 1) > slots.reserved:
        raise GeometryError(
            f"lane {lane} writes up to slot {max(at)} and reads {kv_len}, but has reserved "
            f"{slots.reserved}",
            "slots" if max(at) >= slots.reserved else "kv_len",
        )
    end = min(kv_len, max(slots.extent, max(at) + 1))  # nothing is filled from there on
    first = at[0]
    is_plain = (
        slots.positions is None
        and first <= slots.extent
        and at == positions == list(range(first, end))
    )
    if is_plain:
        after = Slots(min(slots.folded + fold, end), end, slots.reserved)
        return Placed(rows, positions, at, range(end), after, first, True)
    return _place_anywhere(slots, rows, at, positions, end, fold)


def check_rows(slots: Sequence[int], positions: Sequence[int], kv_len: int, context: int) -> None:
    """The rules that hold whatever the working set is; for the present rows of one lane."""
    if len(set(slots)) < len(slots):
        twice = next(slot for i, slot in enumerate(slots) if slot in slots[:i])
        raise GeometryError(f"slot {twice} is written by two rows of a lane", "slots")
    if slots and max(slots) >= kv_len:
        raise GeometryError(
            f"slot {max(slots)} is not below the lane's kv_len of {kv_len}", "slots", "kv_len"
        )
    if positions and max(positions) >= context:
        last = max(positions)
        raise GeometryError(
            f"position {last} is beyond the model's context of {context}", "positions"
        )


def _place_anywhere(
    slots: Slots, rows: Sequence[int], at: list[int], positions: list[int], end: int, fold: int
) -> Placed:
    stored = list(slots.stored[:end])
    stored += [EMPTY] * (end - len(stored))
    before = stored[: at[0]]
    for slot, position in zip(at, positions):
        stored[slot] = position
    while stored and stored[-1] == EMPTY:
        stored.pop()
    extent = len(stored)
    folded = min(slots.folded + fold, extent)
    _check_filled(stored, slots.folded, folded)
    is_number = stored == list(range(extent))
    after = Slots(folded, extent, slots.reserved, None if is_number else tuple(stored))
    is_causal = (
        at == list(range(extent - len(at), extent))
        and EMPTY not in stored
        and max(before, default=EMPTY) <= positions[0]
        and all(a < b for a, b in pairwise(positions))
    )
    kept = min(*at, end, slots.extent)
    return Placed(rows, positions, at, stored, after, kept, is_causal)


def _only_fold(slots: Slots, fold: int, kv_len: int) -> Placed:
    """A lane without rows: it attends nothing, and may freeze."""
    folded = min(slots.folded + fold, slots.extent)
    _check_filled(slots.stored, slots.folded, folded)
    after = slots._replace(folded=folded)
    return Placed((), (), (), slots.stored[:kv_len], after, slots.extent, True)


def _check_filled(stored: Sequence[int], folded: int, end: int) -> None:
    if not isinstance(stored, range) and EMPTY in stored[folded:end]:
        hole = stored.index(EMPTY, folded)
        raise GeometryError(
            f"slot {hole} is empty, so the slots up to {end} cannot be frozen", "fold"
        )


def visible(placed: Placed, row: int, mask: Sequence[int] | None = None) -> list[int]:
    """The slots of its own lane that the row `placed.rows[row]` attends. `mask`: its entries."""
    stored = placed.stored
    if mask is not None:
        return [s for s, position in enumerate(stored) if position != EMPTY and mask[s]]
    limit = placed.positions[row]
    return [s for s, position in enumerate(stored) if EMPTY < position <= limit]


def visible_in_group(other: Placed, position: int) -> list[int]:
    """The slots of another lane of the group that a row at `position` attends."""
    return [s for s, stored in enumerate(other.stored) if EMPTY < stored < position]


def check_indptr(indptr: Sequence[int], num_rows: int) -> None:
    """Offsets of lanes: from 0 to the number of rows, never decreasing."""
    rises = all(start <= end for start, end in pairwise(indptr))
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != num_rows or not rises:
        raise GeometryError(
            f"`indptr` is {list(indptr)[:16]}: it starts with 0, never decreases, and ends with "
            f"the number of rows, {num_rows}",
            "indptr",
        )


def check_mask(placed: Sequence[Placed], width: int) -> None:
    """A mask has an entry for every slot of each lane that has rows."""
    for lane, lane_placed in enumerate(placed):
        if lane_placed.rows and len(lane_placed.stored) > width:
            raise GeometryError(
                f"the mask has {width} columns; lane {lane} has {len(lane_placed.stored)} slots",
                "mask",
            )


def readout_by_lane(
    readout: Sequence[int] | None, indptr: Sequence[int], counts: Sequence[int] | None = None
) -> list[int]:
    """The rows read out in lane order; None: the last row of each lane that has one. `counts`: how
    many each lane must read out."""
    lanes = list(pairwise(indptr))
    if readout is None:
        by_lane = [[end - 1] if end > start else [] for start, end in lanes]
        if counts is not None and not sum(counts):
            return []  # nobody reads outputs
    else:
        for row in readout:
            if not 0 <= row < indptr[-1]:
                raise GeometryError(f"row {row} is read out of {indptr[-1]} rows", "readout")
        by_lane = [[row for row in readout if start <= row < end] for start, end in lanes]
    found = [len(rows) for rows in by_lane]
    if counts is not None and found != list(counts):
        raise GeometryError(
            f"{found} rows are read out of the lanes; the pass is fixed to {list(counts)}",
            "readout",
            "indptr",
        )
    return [row for rows in by_lane for row in rows]
