"""Rows that epilogues see: hidden states and logits, laid out so that a group's are neighbours.

    pool     [hidden states of this wave's readout rows | kept from earlier chunks | one zero row]
    order    for each finishing fire, group by group: where its readouts are in the pool

Nearly always `order` is 0, 1, 2, …: then nothing is copied, and groups get views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from worker.channels import to_device
from worker.model.base import Model
from worker.programs import Group
from worker.state import Fire, Segment

ZERO = -1  # in `order`: an absent row, whose outputs are zeros


class Readout:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.rows: list[int] = []  # of the batch, in the order in which their states are wanted
        self.hidden: Tensor | None = None  # [len(rows), width]
        self.groups: list[Group] = []
        self._starts: list[int] = []  # where a group begins in `order`
        self._order: list[int] = []
        self._kept: list[Tensor] = []  # of earlier chunks
        self._patches: list[tuple[int, int, int]] = []  # (place in order, kept tensor, row of it)
        self._unfinished: list[tuple[Fire, list[int], int]] = []
        self._outputs: dict[str, Tensor] = {}

    # ---- before the forward

    def add_group(self, group: Group, first_rows: Sequence[int]) -> None:
        """Finishing fires whose epilogues run as one call; where the rows of its segments begin."""
        self.groups.append(group)
        self._starts.append(len(self._order))
        place, count = len(self.rows), len(group.singles)
        self._order.extend(range(place, place + count))
        self.rows.extend(range(group.first_row, group.first_row + count))
        for segment, base in zip(group.segments, first_rows):
            self._add_fire(segment, base)

    def _add_fire(self, segment: Segment, base: int) -> None:
        fire = segment.fire
        kept = {}
        for readouts, states in fire.work.hidden:
            self._kept.append(states)
            kept |= {readout: (len(self._kept) - 1, row) for row, readout in enumerate(readouts)}
        for readout, row in enumerate(_present_rows(fire)):
            if readout in kept:
                self._patches.append((len(self._order), *kept[readout]))
                self._order.append(ZERO)
            elif row < 0:
                self._order.append(ZERO)
            else:
                self._order.append(len(self.rows))
                self.rows.append(base + row - segment.start)

    def add_unfinished(self, segment: Segment, base: int) -> None:
        """A fire in progress: its readouts of this chunk are kept for the last one."""
        here = [
            (readout, row)
            for readout, row in enumerate(_present_rows(segment.fire))
            if segment.start <= row < segment.stop
        ]
        if here:
            readouts = [readout for readout, _ in here]
            self._unfinished.append((segment.fire, readouts, len(self.rows)))
            self.rows += [base + row - segment.start for _, row in here]

    # ---- after it

    def keep_unfinished(self) -> None:
        for fire, readouts, start in self._unfinished:
            states = self.hidden[start : start + len(readouts)]
            fire.work.hidden.append((readouts, states.clone()))

    def compute(self) -> None:
        """Lays out the hidden states of `order`, and the logits of the groups that read them."""
        self._outputs = {"hidden": self._ordered()}
        needed = 0  # groups that read logits come first
        for group, start in zip(self.groups, self._starts):
            if group.needs_logits:
                fires = group.fires
                needed = start + len(fires) * fires[0].pass_.spec.num_readouts
        if needed:
            logits = self.model.logits(self._outputs["hidden"][:needed])
            absent = self._absent(needed)
            self._outputs["logits"] = logits.index_fill(0, absent, 0.0) if len(absent) else logits

    def _absent(self, end: int) -> Tensor:
        patched = {place for place, _, _ in self._patches}
        places = [i for i, at in enumerate(self._order[:end]) if at == ZERO and i not in patched]
        return to_device(places, self.model.device)

    def _ordered(self) -> Tensor:
        if self.hidden is not None and self._order == list(range(len(self._order))):
            return self.hidden[: len(self._order)]
        parts = [*self._kept]
        if self.hidden is not None:
            parts.insert(0, self.hidden)
        width = self.model.info.width
        like = parts[0] if parts else torch.empty((0, width), device=self.model.device)
        starts, at = [], 0
        for part in parts:
            starts.append(at)
            at += len(part)
        kept_starts = starts[len(parts) - len(self._kept) :]
        order = [at if place == ZERO else place for place in self._order]  # `at`: the zero row
        for place, kept, row in self._patches:
            order[place] = kept_starts[kept] + row
        pool = torch.cat([*parts, like.new_zeros((1, width))])
        return pool.index_select(0, to_device(order, pool.device))

    def outputs(self, number: int, chosen: Sequence[int]) -> dict[tuple[int, str], Tensor]:
        """The model outputs `[G, *shape]` of the chosen instances of a group (one, or all)."""
        group, start = self.groups[number], self._starts[number]
        spec, stage = group.fires[0].pass_.spec, group.stage
        count = spec.num_readouts
        first, end = chosen[0], chosen[-1] + 1
        found = {}
        for lane, name in stage.outputs:
            rows = self._outputs[name][start + first * count : start + end * count]
            rows = rows.float().unflatten(0, (end - first, count))
            at, size = sum(spec.readout_counts[:lane]), spec.readout_counts[lane]
            found[lane, name] = rows[:, at] if size == 1 else rows[:, at : at + size]
        return found


def _present_rows(fire: Fire) -> Sequence[int]:
    """For each readout its place among the fire's present rows; negative for an absent one."""
    readout, row_of = fire.readout, fire.lanes.row_of
    return readout if row_of is None else [row_of[row] for row in readout]
