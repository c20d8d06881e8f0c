"""One fire of the fake engine: prologue, ports, forward, epilogue. Computes, and commits nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from inferlet.testing import reference
from ipc import geometry
from ipc.errors import ErrorCode, Failure
from ipc.geometry import Explicit, GeometryError, Placed, Slots
from ipc.types import BoundProgram, Operand, PassSpec

if TYPE_CHECKING:
    from inferlet.testing.fake_worker import FakeWorker

Array = np.ndarray


class SetState(NamedTuple):
    """A working set: the token in each slot, and which of them are filled."""

    tokens: tuple[int, ...] = ()
    slots: Slots = Slots()


class FireFailed(Exception):
    """The fire has no effect, and its pipeline fails."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Execution:
    """One fire: prologue, ports, forward, epilogue. Commits nothing."""

    def __init__(self, worker: "FakeWorker", spec: PassSpec) -> None:
        self._worker, self._spec = worker, spec
        self.new: dict[int, Array] = {}
        self._earlier: dict[int, Array] = {}  # what stages have put, also when it was taken since
        self.results: list[Array] = []
        self.indptr: Sequence[int] = spec.indptr
        self.placed: list[Placed] = []
        self.after: list[SetState] = []  # the lanes' sets, with the rows of this fire

    def run(self) -> None:
        spec = self._spec
        self._stage(spec.prologue, {})
        tokens = self._tokens()
        try:
            outputs = self._forward(tokens)
        except GeometryError as error:
            raise FireFailed(error.as_failure()) from None
        self.results = self._stage(spec.epilogue, outputs)

    def growth(self, before: Sequence["SetState"]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """By how much each lane's extent and frozen prefix grow."""
        pairs = [(old.slots, new.slots) for old, new in zip(before, self.after)]
        return (
            tuple(new.extent - old.extent for old, new in pairs),
            tuple(new.folded - old.folded for old, new in pairs),
        )

    def _tokens(self) -> list[int]:
        tokens = self._consume(self._spec.tokens)
        size = self._worker.info.output_vocab_size
        for token in tokens:
            if not -1 <= token < size:
                text = f"token id {token} is outside the vocabulary of {size}"
                raise FireFailed(Failure(ErrorCode.TOKEN_RANGE, text))
        return tokens

    def _consume(self, operand: Operand) -> list[int]:
        """What was put in this fire, else the front."""
        if not operand.is_channel:
            return list(operand.values)
        self.new.pop(operand.channel, None)
        made = self._earlier.get(operand.channel)
        return (self._front(operand.channel) if made is None else made).tolist()

    def _peek(self, operand: Operand) -> list:
        """The new value if there is one, else the front."""
        if not operand.is_channel:
            return list(operand.values)
        made = self.new.get(operand.channel)
        return (self._front(operand.channel) if made is None else made).tolist()

    def _explicit(self) -> Explicit | None:
        place = self._spec.placement
        if place is None:
            return None
        positions, slots = self._consume(place.positions), self._consume(place.slots)
        kv_len, fold = self._peek(place.kv_len), None
        if place.fold is not None:
            fold = (self._consume if place.consumes_fold else self._peek)(place.fold)
        return Explicit(positions, slots, kv_len, fold)

    def _mask(self) -> list | None:
        mask = self._spec.mask
        if mask is None:
            return None
        if mask.is_channel:
            return self._peek(Operand(channel=mask.channel))
        return np.frombuffer(mask.values, np.bool_).reshape(-1, mask.width).tolist()

    def _forward(self, tokens: list[int]) -> dict[tuple[int, str], Array]:
        spec = self._spec
        if spec.indptr_channel >= 0:
            self.indptr = self._peek(Operand(channel=spec.indptr_channel))
            geometry.check_indptr(self.indptr, spec.num_rows)
        explicit = self._explicit()
        readout: Sequence[int] = spec.readout
        if spec.readout_channel >= 0 or spec.indptr_channel >= 0:
            named = self._peek(Operand(channel=spec.readout_channel, values=spec.readout)) or None
            readout = geometry.readout_by_lane(named, self.indptr, spec.readout_counts)
        mask = self._mask()
        self._place(tokens, explicit)
        if mask is not None:
            geometry.check_mask(self.placed, spec.mask.width)
        rows = {row: self._outputs(row, tokens, mask) for row in set(readout)}
        return self._readout(readout, rows)

    def _place(self, tokens: list[int], explicit: Explicit | None) -> None:
        sets = [self._worker.working_sets[number] for number in self._spec.working_sets]
        context = self._worker.info.context_length
        slots = [held.slots for held in sets]
        self.placed = geometry.place(slots, self.indptr, tokens, explicit, context)
        for held, placed in zip(sets, self.placed):
            kept = [*held.tokens, *[0] * len(placed.stored)]
            for row, slot in zip(placed.rows, placed.slots):
                kept[slot] = tokens[row]
            self.after.append(SetState(tuple(kept[: placed.after.extent]), placed.after))

    def _outputs(self, row: int, tokens: list[int], mask: list | None) -> dict[str, Array]:
        if tokens[row] < 0:  # an absent row's outputs are zeros
            return self._worker.absent_outputs()
        lane = next(lane for lane, end in enumerate(self.indptr[1:]) if row < end)
        placed = self.placed[lane]
        at = list(placed.rows).index(row)
        allowed = mask[row] if mask is not None else None
        seen = [(lane, slot) for slot in geometry.visible(placed, at, allowed)]
        groups = self._spec.groups
        for other, theirs in enumerate(self.placed):
            if groups and other != lane and groups[lane] == groups[other] >= 0:
                visible = geometry.visible_in_group(theirs, placed.positions[at])
                seen += [(other, slot) for slot in visible]
        seen.sort(key=lambda place: self.placed[place[0]].stored[place[1]])
        return self._worker.outputs_after([self.after[i].tokens[slot] for i, slot in seen])

    def _readout(
        self, readout: Sequence[int], rows: dict[int, dict[str, Array]]
    ) -> dict[tuple[int, str], Array]:
        outputs, start = {}, 0
        for lane, count in enumerate(self._spec.readout_counts):
            read = readout[start : start + count]
            start += count
            for name in self._worker.info.outputs if count else ():
                stacked = np.stack([rows[row][name] for row in read])
                outputs[lane, name] = stacked[0] if count == 1 else stacked
        return outputs

    def _stage(
        self, bound: BoundProgram | None, outputs: dict[tuple[int, str], Array]
    ) -> list[Array]:
        if bound is None:
            return []
        worker = self._worker
        program = worker.programs[bound.program_id]
        types = [worker.channels[number].cell for number in bound.channels]
        registers, results = reference.run(
            program,
            types,
            {slot: self._front(bound.channels[slot]) for slot in program.fronts},
            {key: outputs[key] for key in program.outputs()},
            reference.constant_arrays(program, bound.constants),
            {slot: self._earlier[bound.channels[slot]] for slot in program.earlier},
        )
        for slot in program.cleared:
            self.new.pop(bound.channels[slot], None)
        for slot, value in registers.items():
            self._earlier[bound.channels[slot]] = value
            if slot not in program.cleared:
                self.new[bound.channels[slot]] = value
        return results

    def _front(self, number: int) -> Array:
        return self._worker.channels[number].ring[0]
