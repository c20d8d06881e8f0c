"""Single fires: one row each, appended plainly and read out. That is what most waves consist of, so
they are not treated one by one: their ids, rows, cells and results are columns.

Their rows are the first of the batch, group by group. Should an instance fail, the others of its
group are finished as any fires are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from torch import Tensor

from ipc.messages import Event, Fired
from ipc.types import DType, TensorType
from worker import settle
from worker.batch import Patch
from worker.channels import DeviceRings
from worker.definitions import Lanes, StageKey
from worker.eta.executor import StageOutput
from worker.history import Unread
from worker.packing import Packed, Packer, Place
from worker.programs import Group, Work
from worker.state import Fire, Pipeline, Process, Segment, State
from worker.working_set import WorkingSet

TOKEN = TensorType(DType.i32, (1,))

Told = tuple[Process, Event, Pipeline | None]  # the pipeline, unless a run has it


def split(segments: Sequence[Segment]) -> tuple[list[Fire], list[Segment]]:
    """Fires that are single and have known tokens, and the other segments."""
    singles, others = [], []
    for segment in segments:
        fire = segment.fire
        pass_ = fire.pass_
        if pass_.is_single and not pass_.tokens.may_be_absent and fire.sets[0].positions is None:
            singles.append(fire)
        else:
            others.append(segment)
    return singles, others


@dataclass(slots=True)
class Column:
    """What the host is to be told of the single fires of one group."""

    results: list[int]  # numbers of packed tensors: row i is that of fire i
    fires: list[tuple[Process, Pipeline, int, bool]]  # …, sequence number, whether a run has it
    frozen: dict[int, tuple[int, ...]]  # by place: growth of the frozen prefix where it is not 1
    cells: dict[int, list[tuple[int, Place]]]  # by place: what watched channels got

    def events(self, packed: Packed) -> list[Told]:
        count = len(self.fires)
        columns = [packed.column(number, count) for number in self.results]
        rows = zip(*columns) if columns else repeat(())
        if not (self.frozen or self.cells):
            return [
                (process, Fired(pipeline.number, seq, row), None if has_run else pipeline)
                for (process, pipeline, seq, has_run), row in zip(self.fires, rows)
            ]
        told: list[Told] = []
        for at, ((process, pipeline, seq, has_run), row) in enumerate(zip(self.fires, rows)):
            cells = tuple((number, packed.get(place)) for number, place in self.cells.get(at, ()))
            frozen = self.frozen.get(at, ())
            event = Fired(pipeline.number, seq, row, cells, frozen=frozen)
            told.append((process, event, None if has_run else pipeline))
        return told


@dataclass(slots=True)
class Unreads:
    """Ids that have stayed on the device, and whose they are."""

    number: int  # of the packed tensor
    tokens: list[tuple[Unread, WorkingSet]]

    def arrived(self, packed: Packed) -> None:
        for data, (unread, working_set) in zip(
            packed.column(self.number, len(self.tokens)), self.tokens
        ):
            unread.id = int.from_bytes(data, "little")
            working_set.enter_pages()


@dataclass(slots=True)
class Singles:
    """Those of one wave."""

    state: State
    rings: DeviceRings
    groups: dict[StageKey, Group] = field(default_factory=dict)
    fires: list[Fire] = field(default_factory=list)  # in the order of their rows
    ids: list[int] = field(default_factory=list)
    device_ids: Tensor | None = None  # [fires, 1]: they stay there
    unreads: list[Unread] = field(default_factory=list)

    def begin(self, fires: Sequence[Fire]) -> None:
        """Puts them in order, and reads their tokens."""
        if not fires:
            return
        by_key: dict[StageKey, list[Fire]] = {}
        for fire in fires:
            by_key.setdefault(fire.pass_.epilogue.key, []).append(fire)
        groups = [Group(group[0].pass_.epilogue, group) for group in by_key.values()]
        groups.sort(key=lambda group: not group.needs_logits)
        for group in groups:
            group.first_row = len(self.fires)
            self.fires += group.singles
            self.groups[group.stage.key] = group
        channels = [fire.pass_.tokens for fire in self.fires]
        tokens = self.rings.gather(TOKEN, [c.base + c.taken % c.ring for c in channels])
        if self.state.config.tokens_stay:
            self.device_ids, self.ids = tokens, [0] * len(channels)
            self.unreads = [Unread() for _ in channels]
        else:
            self.ids = tokens.flatten().tolist()

    @property
    def sets(self) -> list[WorkingSet]:
        return [fire.sets[0] for fire in self.fires]

    def patches(self) -> list[Patch]:
        if self.device_ids is None:
            return []
        return [(list(range(len(self.fires))), self.device_ids.flatten())]

    def pack_ids(self, packer: Packer) -> Unreads | None:
        """Ids of the device go to the host after all, with the wave's values."""
        if self.device_ids is None:
            return None
        number = packer.add_first(self.device_ids, len(self.fires))
        return Unreads(number, list(zip(self.unreads, self.sets)))

    def commit(self, group: Group, output: StageOutput, packer: Packer) -> Column:
        """Cells and counts of the group's single fires, after their epilogues."""
        fires, state = group.singles, self.state
        column = Column([packer.add_first(made, len(fires)) for made in output.results], [], {}, {})
        for slot in group.stage.appended:
            self._append_cells(group, slot, output.registers[slot], packer, column.cells)
        start, end = group.first_row, group.first_row + len(fires)
        tokens = self.ids[start:end] if self.device_ids is None else self.unreads[start:end]
        for at, (fire, token) in enumerate(zip(fires, tokens)):
            has_run = fire.run is not None
            column.fires.append((fire.process, fire.pipeline, fire.seq, has_run))
            frozen = settle.commit_single(state, fire, token)
            if frozen:
                column.frozen[at] = frozen
        return column

    def become_ordinary(self, fires: Sequence[Fire]) -> None:
        """They are finished one by one: somebody else in their group has failed."""
        places = {fire: at for at, fire in enumerate(self.fires)}
        for fire in fires:
            fire.lanes, fire.work, fire.rows_done = (
                Lanes([self.ids[places[fire]]], (0, 1)),
                Work(),
                1,
            )
            if self.device_ids is not None:
                fire.tokens_stay, fire.work.tokens = True, (self.device_ids, places[fire])

    def _append_cells(
        self,
        group: Group,
        slot: int,
        values: Tensor,
        packer: Packer,
        cells: dict[int, list[tuple[int, Place]]],
    ) -> None:
        channels = [fire.pass_.epilogue.channels[slot] for fire in group.singles]
        indices = [c.base + c.written % c.ring for c in channels]
        self.rings.scatter(channels[0].cell, indices, values[: len(channels)])
        for at, channel in enumerate(channels):
            if channel.watched:
                cells.setdefault(at, []).append((channel.number, packer.add(values, at)))


def events_of(columns: Sequence[Column], packed: Packed) -> list[Told]:
    return list(chain.from_iterable(column.events(packed) for column in columns))
