"""Computes one wave: prologues, token ids, forward, epilogues, and then commits all of it at once.

A fire that fails here commits nothing and leaves the wave; the others go on. Nothing waits for the
host: values for it are packed, and cut into events when they have arrived (`Launched.events`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from ipc.errors import ErrorCode, Failure
from ipc.types import TensorType
from worker import ports, settle
from worker.batch import LaneRows, Patch, assemble
from worker.channels import DeviceRings
from worker.definitions import Channel, Lanes, Stage
from worker.eta.executor import CompiledProgram, StageOutput
from worker.heads import context_failure
from worker.launched import Delivery, Launched
from worker.model.base import Model
from worker.packing import Packer, select_rows
from worker.placing import Placer, is_masked, lane_rows
from worker.programs import Cells, Group, Programs, Ran, Work, group_by_key, one_by_one, run_group
from worker.readout import Readout
from worker.singles import Singles, split
from worker.state import Fire, Segment, State, Wave
from worker.swap_space import SwapSpace

NewCell = tuple[Channel, Tensor, int]  # a fire's: the channel, a tensor, which row of it


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
        singles = Singles(self.state, self.rings)
        fires, others = split(wave.segments)
        singles.begin(fires)
        segments = self._start(others)
        try:
            readout = self._forward(segments, singles)
        except Exception as error:  # no lane can be blamed
            failure = Failure(ErrorCode.PROGRAM_FAULT, f"the model failed: {error}")
            for fire in [*singles.fires, *(segment.fire for segment in segments)]:
                settle.fail(self.state, fire, failure)
            return Launched(Packer().pack())
        return self._finish(segments, singles, readout)

    def _start(self, segments: Sequence[Segment]) -> list[Segment]:
        """Runs prologues, reads tokens, places rows; gives the segments that go on."""
        starting = [segment for segment in segments if segment.fire.work is None]
        self._run_prologues(starting)
        self._read_tokens(starting)
        self.placer.place([segment.fire for segment in starting])
        left = [segment for segment in segments if segment.fire.begun]
        left.sort(key=is_masked)  # models like them last
        for segment in left:
            if segment.cut and ports.may_be_cut(segment.fire):
                segment.stop = segment.cut
            segment.stop = min(segment.stop, segment.fire.num_rows)
        return left

    # ---- before the forward

    def _run_prologues(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.fire.work = Work()
        fires = [segment.fire for segment in segments if segment.fire.pass_.prologue]
        for group in group_by_key(fires, lambda fire: fire.pass_.prologue):
            stages = [fire.pass_.prologue for fire in group]
            cells = partial(self._prologue_cells, stages)
            made = run_group(self.programs, stages, cells, lambda chosen: {})
            for fire, result in zip(group, one_by_one(made, len(group))):
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

    def _forward(self, segments: Sequence[Segment], singles: Singles) -> Readout:
        """Computes the segments' rows, and gathers what finishing epilogues will see."""
        lanes: list[LaneRows] = []
        first_rows, row = [], len(singles.fires)
        for segment in segments:
            first_rows.append(row)
            row += segment.stop - segment.start
            lanes += lane_rows(segment)
        readout = self._lay_out(segments, first_rows, singles)
        if lanes or singles.fires:
            model = self.model
            patches = singles.patches() + self._token_patches(segments, first_rows)
            batch = assemble(
                lanes, readout.rows, model.page_size, model.device, patches,
                singles.sets, singles.ids,
            )  # fmt: skip
            readout.hidden = self.model.forward(batch)
        readout.keep_unfinished()
        return readout

    def _lay_out(
        self, segments: Sequence[Segment], first_rows: Sequence[int], singles: Singles
    ) -> Readout:
        readout = Readout(self.model)
        bases = dict(zip(map(id, segments), first_rows))
        groups = dict(singles.groups)
        for segment in segments:
            if segment.is_last and segment.fire.pass_.epilogue:
                stage = segment.fire.pass_.epilogue
                group = groups.setdefault(stage.key, Group(stage))
                group.segments.append(segment)
        for group in sorted(groups.values(), key=lambda group: not group.needs_logits):
            readout.add_group(group, [bases[id(segment)] for segment in group.segments])
        for segment in segments:
            if not segment.is_last and segment.fire.pass_.epilogue:
                readout.add_unfinished(segment, bases[id(segment)])
        return readout

    def _token_patches(self, segments: Sequence[Segment], first_rows: Sequence[int]) -> list[Patch]:
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

    def _finish(self, segments: Sequence[Segment], singles: Singles, readout: Readout) -> Launched:
        for segment in segments:
            segment.fire.rows_done = segment.stop
        ran, whole = self._run_epilogues(readout, singles)
        packer = Packer()
        unreads = singles.pack_ids(packer)
        columns = [singles.commit(group, output, packer) for group, output in whole]
        done = [segment.fire for segment in segments if segment.is_last and segment.fire.begun]
        done += [fire for fire in singles.fires if fire in ran]  # somebody in their group failed
        kept = [(fire, fire.work.tokens) for fire in done if fire.work.tokens is not None]
        tokens = [(fire, packer.add(*rows)) for fire, rows in kept]
        puts = [_appended_cells(fire, ran.get(fire)) for fire in done]
        self._scatter_puts(puts)
        deliveries = [
            self._commit(fire, ran.get(fire), cells, packer) for fire, cells in zip(done, puts)
        ]
        return Launched(packer.pack(), columns, deliveries, tokens, unreads)

    def _run_epilogues(
        self, readout: Readout, singles: Singles
    ) -> tuple[dict[Fire, Ran], list[tuple[Group, StageOutput]]]:
        """What each fire got, and the groups of single ones: theirs only where one has failed."""
        ran: dict[Fire, Ran] = {}
        whole: list[tuple[Group, StageOutput]] = []
        readout.compute()
        for number, group in enumerate(readout.groups):
            fires = group.fires
            stages = [fire.pass_.epilogue for fire in fires]
            cells = partial(self._epilogue_cells, fires)
            made = run_group(self.programs, stages, cells, partial(readout.outputs, number))
            if not isinstance(made, StageOutput):
                for fire, result in zip(fires, made):
                    if isinstance(result, Failure):
                        settle.fail(self.state, fire, result)
                    else:
                        ran[fire] = result
                singles.become_ordinary([fire for fire in group.singles if fire in ran])
                continue
            if group.singles:
                whole.append((group, made))
            for row, segment in enumerate(group.segments, len(group.singles)):
                ran[segment.fire] = Ran(made, row)
        return ran, whole

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
    ) -> Delivery:
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
        return Delivery(
            fire, places, cells, () if is_known else appended,
            () if frozen == appended else frozen,
        )  # fmt: skip


def _prologue_row(fire: Fire, channel: Channel) -> Tensor:
    ran, slot = fire.work.prologue, fire.pass_.prologue.slot_of[channel]
    return ran.output.registers[slot][ran.row]


def _appended_cells(fire: Fire, epilogue: Ran | None) -> list[NewCell]:
    pass_, cells = fire.pass_, []
    for stage, ran in ((pass_.prologue, fire.work.prologue), (pass_.epilogue, epilogue)):
        if stage is not None:
            registers = ran.output.registers if stage.appended else {}
            for slot in stage.appended:
                cells.append((stage.channels[slot], registers[slot], ran.row))
    return cells
