"""Placed fires: reads their ports, makes their slots writable, and says what their rows attend.

Most fires append to their sets and need nothing of this. A lane whose placement turns out to be a
plain append runs as if it were: only the others take the masked path of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ipc.errors import ErrorCode, Failure
from ipc.geometry import Placed
from worker import changes, ports, settle
from worker.batch import LaneRows, Seen
from worker.channels import DeviceRings
from worker.definitions import Channel
from worker.model.base import Model
from worker.ports import Port
from worker.state import Fire, Segment, State

#: What the prologue of a fire has put on a channel.
PrologueRow = Callable[[Fire, Channel], Tensor]


class Placer:
    def __init__(
        self, state: State, model: Model, rings: DeviceRings, prologue_row: PrologueRow
    ) -> None:
        self.state = state
        self.model = model
        self.rings = rings
        self._prologue_row = prologue_row

    def place(self, fires: Sequence[Fire]) -> None:
        """Resolves the fires that need it, whose tokens are known; those that cannot be fail."""
        placed = [fire for fire in fires if _needs_placing(fire)]
        if not placed:
            return
        values = self._read_numbers(placed)
        copies = []
        for fire, numbers in zip(placed, values):
            mask = self._read_mask(fire)
            failure = ports.resolve(self.state, fire, numbers, mask) or self._refusal(fire)
            if failure is not None:
                settle.fail(self.state, fire, failure)
            elif fire.pass_.ports is not None:
                for held, lane in zip(fire.sets, fire.view.placed):
                    copies += changes.write(held, lane, fire.spare)
                settle.give_back_spare(self.state, fire)
        self.model.copy_pages(copies)

    def _refusal(self, fire: Fire) -> Failure | None:
        if self.model.mask_refusal is None:
            return None
        if all(lane.seen is None for lane in lane_rows(Segment(fire, 0, fire.num_rows))):
            return None
        return Failure(ErrorCode.GEOMETRY, self.model.mask_refusal)

    def _read_numbers(self, fires: Sequence[Fire]) -> list[dict[str, Sequence[int]]]:
        """The values of all ports but masks, with one copy to the host for all of them."""
        found: list[dict[str, Sequence[int]]] = [{} for _ in fires]
        wanted: list[tuple[dict[str, Sequence[int]], str, Tensor]] = []
        for fire, numbers in zip(fires, found):
            if fire.pass_.ports is None:
                continue
            for name, port in fire.pass_.ports.numbers.items():
                numbers[name] = port.values
                if port.channel is not None:
                    wanted.append((numbers, name, self._value(fire, port)))
        if wanted:
            flat = torch.cat([value.flatten() for _, _, value in wanted]).tolist()
            at = 0
            for numbers, name, value in wanted:
                # u32 lies in a wider signed type on the device.
                numbers[name] = [number & 0xFFFFFFFF for number in flat[at : at + value.numel()]]
                at += value.numel()
        return found

    def _read_mask(self, fire: Fire) -> Tensor | None:
        port = fire.pass_.ports.mask if fire.pass_.ports is not None else None
        if port is None:
            return None
        if port.channel is None:
            flat = torch.frombuffer(bytearray(port.values), dtype=torch.bool)
            return flat.view(-1, fire.pass_.ports.mask_width)
        return self._value(fire, port).bool().cpu()

    def _value(self, fire: Fire, port: Port) -> Tensor:
        if port.from_prologue:
            return self._prologue_row(fire, port.channel)
        return self.rings.gather(port.channel.cell, [port.channel.front])[0]


def _needs_placing(fire: Fire) -> bool:
    if not fire.begun or fire.lanes is None:
        return False
    return fire.pass_.ports is not None or any(held.positions is not None for held in fire.sets)


# ---- rows of a segment


def lane_rows(segment: Segment) -> list[LaneRows]:
    """The parts of the segment's lanes that have rows in it."""
    fire, parts = segment.fire, []
    ids, indptr = fire.lanes.ids, fire.lanes.indptr
    all_skipped = fire.skipped or [0] * len(fire.sets)
    for lane, (held, skipped) in enumerate(zip(fire.sets, all_skipped)):
        first, end = indptr[lane], indptr[lane + 1]
        start, stop = max(first, segment.start), min(end, segment.stop)
        if start >= stop:
            continue
        tokens = ids[start:stop]
        if fire.view is None:
            slot = held.length + skipped + start - first
            parts.append(LaneRows(tokens, slot, held.pages))
        else:
            parts.append(_placed_rows(fire, lane, tokens, start - first))
    return parts


def is_masked(segment: Segment) -> bool:
    """Whether some lane takes the masked path, perhaps."""
    view = segment.fire.view
    return view is not None and (view.mask is not None or not all(p.is_causal for p in view.placed))


def _placed_rows(fire: Fire, lane: int, tokens: Sequence[int], start: int) -> LaneRows:
    held, view = fire.sets[lane], fire.view
    placed = view.placed[lane]
    rows = slice(start, start + len(tokens))
    positions, slots = placed.positions[rows], placed.slots[rows]
    seen = _seen(fire, lane, placed)
    if seen is not None:
        return LaneRows(tokens, 0, held.pages, positions, slots, seen)
    if isinstance(placed.stored, range):
        return LaneRows(tokens, slots[0], held.pages)
    return LaneRows(tokens, slots[0], held.pages, positions, slots)


def _seen(fire: Fire, lane: int, placed: Placed) -> Seen | None:
    """What the rows attend, page by page; None when that is what they attend by appending."""
    view, bound = fire.view, fire.pass_.ports
    others = ports.neighbours(bound.groups, lane) if bound is not None else []
    others = [other for other in others if view.placed[other].stored]
    if view.mask is None and placed.is_causal and not others:
        return None
    at = torch.tensor(list(placed.positions))[:, None]
    stored = _stored(placed)
    by_rule = (stored >= 0) & (stored <= at)
    own = by_rule
    if view.mask is not None:
        own = view.mask[list(placed.rows), : stored.shape[1]] & (stored >= 0)
        if placed.is_causal and not others and torch.equal(own, by_rule):
            return None
    pages, parts = [], []
    for other, visible in [(lane, own)] + [
        (other, _below(view.placed[other], at)) for other in others
    ]:
        held = fire.sets[other]
        count = held.pool.pages_for(visible.shape[1])
        pages += held.pages[:count]
        padding = count * held.pool.page_size - visible.shape[1]
        parts.append(torch.nn.functional.pad(visible, (0, padding)))
    return Seen(pages, torch.cat(parts, 1))


def _below(other: Placed, at: Tensor) -> Tensor:
    stored = _stored(other)
    return (stored >= 0) & (stored < at)


def _stored(placed: Placed) -> Tensor:
    """The positions in its slots, `[1, slots]`."""
    stored = placed.stored
    if isinstance(stored, range):  # thousands of slots are common, and read in every wave
        return torch.arange(stored.start, stored.stop)[None, :]
    return torch.tensor(stored, dtype=torch.int64)[None, :]
