"""Computes one wave: prologues, token ids, forward, epilogues, and then commits all of it at once.

A fire that fails here commits nothing and leaves the wave; the others go on. Nothing waits for the
host: values for it are packed, and cut into events when they have arrived (`Launched.events`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from ipc.errors import ErrorCode, Failure
from ipc.messages import Fired
from ipc.types import TensorType
from worker import prefix, settle
from worker.batch import LaneRows, Patch, assemble
from worker.channels import DeviceRings
from worker.eta.executor import CompiledProgram
from worker.model.base import Model
from worker.packing import Packed, Packer, Place, select_rows
from worker.placing import Placer, is_masked, lane_rows
from worker.programs import Cells, Programs, Ran, group_by_key, run_group
from worker.readout import Readout
from worker.scheduler import context_failure
from worker.state import Channel, Fire, Lanes, Process, Segment, Stage, State, Wave
from worker.swap_space import SwapSpace


@dataclass(slots=True)
class Work:
    """What a fire in progress keeps from wave to wave."""

    prologue: Ran | None = None
    hidden: list[tuple[list[int], Tensor]] = field(default_factory=list)  # readouts, their rows
    tokens: tuple[Tensor, int] | None = None  # ids that stay on the device: a tensor, which row


NewCell = tuple[Channel, Tensor, int]  # a fire's: the channel, a tensor, which row of it


@dataclass(slots=True)
class _Delivery:
    fire: Fire
    results: list[Place]
    cells: list[tuple[int, Place]]
    appended: tuple[int, ...]
    frozen: tuple[int, ...]


@dataclass(slots=True)
class Launched:
    """A wave whose counts are committed and whose values are on their way."""

    deliveries: list[_Delivery]
    packed: Packed
    tokens: list[tuple[Fire, Place]]  # ids that have stayed on the device

    def events(self) -> list[tuple[Fire, Process, Fired]]:
        """What to tell, once the values are here."""
        self.packed.wait()
        get = self.packed.get
        for fire, place in self.tokens:
            prefix.tokens_arrived(fire, memoryview(get(place)).cast("i"))
        return [
            (
                delivery.fire,
                delivery.fire.process,
                Fired(
                    delivery.fire.pipeline.number,
                    delivery.fire.seq,
                    tuple(get(place) for place in delivery.results),
                    tuple((number, get(place)) for number, place in delivery.cells),
                    delivery.appended,
                    delivery.fire.cached,
                    delivery.frozen,
                ),
            )
            for delivery in self.deliveries
        ]


class Launcher:
    def __init__(self, state: State, model: Model, rings: DeviceRings) -> None:
        self.state = state
        self.model = model
        self.rings = rings
        self.programs = Programs(model.device)
        self.placer = Placer(state, model, rings, _prologue_row)
        self.swap_space = SwapSpace(model)

    @torch.inference_mode()
    def launch(self, wave: Wave) -> Launched:
        self.rings.flush()
        self.swap_space.carry_out(wave.moves)
        starting = [segment for segment in wave.segments if segment.fire.work is None]
        self._run_prologues(starting)
        self._read_tokens(starting)
        self.placer.place([segment.fire for segment in starting])
        segments = [segment for segment in wave.segments if segment.fire.begun]
        segments.sort(key=is_masked)  # models like them last
        for segment in segments:
            segment.stop = min(segment.stop, segment.fire.num_rows)
        try:
            outputs = self._forward(segments)
        except Exception as error:  # no lane can be blamed
            failure = Failure(ErrorCode.PROGRAM_FAULT, f"the model failed: {error}")
            for segment in segments:
                settle.fail(self.state, segment.fire, failure)
            return Launched([], Packer().pack(), [])
        return self._finish(segments, outputs)

    # ---- before the forward

    def _run_prologues(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.fire.work = Work()
        fires = [segment.fire for segment in segments if segment.fire.pass_.prologue]
        for group in group_by_key(fires, lambda fire: fire.pass_.prologue):
            stages = [fire.pass_.prologue for fire in group]
            cells = partial(self._prologue_cells, stages)
            results = run_group(self.programs, stages, cells, lambda chosen: {})
            for fire, result in zip(group, results):
                if isinstance(result, Failure):
                    settle.fail(self.state, fire, result)
                else:
                    fire.work.prologue = result

    def _prologue_cells(
        self, stages: Sequence[Stage], compiled: CompiledProgram, chosen: Sequence[int]
    ) -> Cells:
        return self._ring_fronts(compiled.fronts_needed, [stages[i] for i in chosen]), {}

    def _ring_fronts(self, slots: Sequence[int], stages: Sequence[Stage]) -> dict[int, Tensor]:
        return {
            slot: self.rings.gather(
                stages[0].slot_types[slot], [stage.channels[slot].front for stage in stages]
            )
            for slot in slots
        }

    def _read_tokens(self, segments: Sequence[Segment]) -> None:
        """Device-made token ids: which rows are present must be known to place them."""
        by_cell: dict[TensorType, list[Fire]] = {}
        for segment in segments:
            fire = segment.fire
            if not fire.begun or fire.lanes is not None:
                continue
            if self.state.config.tokens_stay and fire.pass_.is_exact and segment.is_last:
                fire.tokens_stay = True
                fire.lanes = Lanes([0] * fire.num_rows, fire.pass_.spec.indptr)
            else:
                by_cell.setdefault(fire.pass_.tokens.cell, []).append(fire)
        if not by_cell:
            return
        rows = [self._token_rows(cell, group).flatten() for cell, group in by_cell.items()]
        ids = torch.cat(rows).tolist()  # one copy to the host for all of them
        at = 0
        for fire in chain.from_iterable(by_cell.values()):
            end = at + fire.pass_.spec.num_rows
            self._set_tokens(fire, ids[at:end])
            at = end

    def _token_rows(self, cell: TensorType, fires: Sequence[Fire]) -> Tensor:
        """Token ids `[G, rows]`: of the rings' fronts, or what the prologue has just put."""
        rows = self.rings.gather(cell, [fire.pass_.tokens.front for fire in fires])
        for number, fire in enumerate(fires):
            if fire.pass_.tokens_from_prologue:
                rows[number] = _prologue_row(fire, fire.pass_.tokens)
        return rows

    def _set_tokens(self, fire: Fire, ids: list[int]) -> None:
        vocab_size, context = self.state.model.output_vocab_size, self.state.model.context_length
        if min(ids) < -1 or max(ids) >= vocab_size:
            bad = next(token for token in ids if not -1 <= token < vocab_size)
            message = f"token id {bad} is outside the vocabulary of {vocab_size}"
            settle.fail(self.state, fire, Failure(ErrorCode.TOKEN_RANGE, message))
            return
        fire.lanes = Lanes(ids, fire.pass_.spec.indptr)
        if fire.pass_.ports is not None:
            return  # placing checks positions
        for working_set, rows in zip(fire.sets, fire.lanes.counts):
            if rows and working_set.positions is None and working_set.length + rows > context:
                failure = context_failure(working_set.length + rows, context)
                settle.fail(self.state, fire, failure)
                return

    # ---- forward

    def _forward(self, segments: Sequence[Segment]) -> Readout:
        """Computes the segments' rows, and gathers what finishing epilogues will see."""
        lanes: list[LaneRows] = []
        first_rows, row = [], 0
        for segment in segments:
            first_rows.append(row)
            row += segment.stop - segment.start
            lanes += lane_rows(segment)
        readout = Readout(self.model)
        finishing = [segment for segment in segments if segment.is_last]
        bases = dict(zip(map(id, segments), first_rows))
        with_epilogue = [segment.fire for segment in finishing if segment.fire.pass_.epilogue]
        groups = group_by_key(with_epilogue, lambda fire: fire.pass_.epilogue)
        segment_of = {segment.fire: segment for segment in segments}
        for group in sorted(groups, key=lambda group: not _needs_logits(group[0])):
            chosen = [segment_of[fire] for fire in group]
            readout.add_group(chosen, [bases[id(segment)] for segment in chosen])
        for segment in segments:
            if not segment.is_last and segment.fire.pass_.epilogue:
                readout.add_unfinished(segment, bases[id(segment)])
        if lanes:
            model = self.model
            patches = self._token_patches(segments, first_rows)
            batch = assemble(lanes, readout.rows, model.page_size, model.device, patches)
            readout.hidden = self.model.forward(batch)
        readout.keep_unfinished()
        return readout

    def _token_patches(
        self, segments: Sequence[Segment], first_rows: Sequence[int]
    ) -> list[Patch]:
        """Token ids that go from the rings into the batch without the host."""
        by_cell: dict[TensorType, tuple[list[int], list[Fire]]] = {}
        for segment, first in zip(segments, first_rows):
            if segment.fire.tokens_stay:
                rows, fires = by_cell.setdefault(segment.fire.pass_.tokens.cell, ([], []))
                rows.extend(range(first, first + segment.stop))
                fires.append(segment.fire)
        patches = []
        for cell, (rows, fires) in by_cell.items():
            tokens = self._token_rows(cell, fires)
            for place, fire in enumerate(fires):
                fire.work.tokens = tokens, place
            patches.append((rows, tokens.flatten()))
        return patches

    # ---- after it

    def _finish(self, segments: Sequence[Segment], readout: Readout) -> Launched:
        for segment in segments:
            segment.fire.rows_done = segment.stop
        ran = self._run_epilogues(readout)
        done = [segment.fire for segment in segments if segment.is_last and segment.fire.begun]
        packer = Packer()
        kept = [(fire, fire.work.tokens) for fire in done if fire.work.tokens is not None]
        tokens = [(fire, packer.add(*rows)) for fire, rows in kept]
        puts = [_appended_cells(fire, ran.get(fire)) for fire in done]
        self._scatter_puts(puts)
        deliveries = [
            self._commit(fire, ran.get(fire), cells, packer) for fire, cells in zip(done, puts)
        ]
        return Launched(deliveries, packer.pack(), tokens)

    def _run_epilogues(self, readout: Readout) -> dict[Fire, Ran]:
        ran: dict[Fire, Ran] = {}
        readout.compute()
        for number, group in enumerate(readout.groups):
            stages = [fire.pass_.epilogue for fire in group]
            cells = partial(self._epilogue_cells, group)
            outputs = partial(readout.outputs, number)
            for fire, result in zip(group, run_group(self.programs, stages, cells, outputs)):
                if isinstance(result, Failure):
                    settle.fail(self.state, fire, result)
                else:
                    ran[fire] = result
        return ran

    def _epilogue_cells(
        self, group: Sequence[Fire], compiled: CompiledProgram, chosen: Sequence[int]
    ) -> Cells:
        fires = [group[i] for i in chosen]
        fronts = self._ring_fronts(compiled.fronts_needed, [fire.pass_.epilogue for fire in fires])
        earlier = {}
        for slot in compiled.earlier_needed:
            rows = [_prologue_row(fire, fire.pass_.epilogue.channels[slot]) for fire in fires]
            earlier[slot] = torch.stack(rows)
        return fronts, earlier

    def _scatter_puts(self, appended: Sequence[list[NewCell]]) -> None:
        """Writes every new cell: one `index_copy_` for each channel slot of a group."""
        puts: dict[int, tuple[Tensor, list[int], list[Channel]]] = {}
        for channel, tensor, row in chain.from_iterable(appended):
            put = puts.get(id(tensor))
            if put is None:
                put = puts[id(tensor)] = tensor, [], []
            put[1].append(row)
            put[2].append(channel)
        for tensor, rows, channels in puts.values():
            values = select_rows(tensor, rows)
            self.rings.scatter(channels[0].cell, [channel.back for channel in channels], values)

    def _commit(
        self, fire: Fire, ran: Ran | None, appended_cells: list[NewCell], packer: Packer
    ) -> _Delivery:
        results = ran.output.results if ran is not None else []
        cells = [
            (channel.number, packer.add(tensor, row))
            for channel, tensor, row in appended_cells
            if channel.watched
        ]
        places = [packer.add(tensor, ran.row) for tensor in results]
        is_known = fire.pass_.is_exact and fire.pass_.ports is None
        grown = settle.commit(self.state, fire)
        appended, frozen = zip(*grown)
        return _Delivery(
            fire, places, cells, () if is_known else appended,
            () if frozen == appended else frozen,
        )  # fmt: skip


def _needs_logits(fire: Fire) -> bool:
    return any(name == "logits" for _, name in fire.pass_.epilogue.outputs)


def _prologue_row(fire: Fire, channel: Channel) -> Tensor:
    ran, slot = fire.work.prologue, fire.pass_.prologue.channels.index(channel)
    return ran.output.registers[slot][ran.row]


def _appended_cells(fire: Fire, epilogue: Ran | None) -> list[NewCell]:
    cells = []
    for use in fire.pass_.uses:
        if use.appends:
            ran = fire.work.prologue if use.new_from == "prologue" else epilogue
            stage = getattr(fire.pass_, use.new_from)
            slot = stage.channels.index(use.channel)
            cells.append((use.channel, ran.output.registers[slot], ran.row))
    return cells
