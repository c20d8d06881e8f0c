"""One fire of the fake engine: prologue, ports, forward, epilogue. Computes, and commits nothing."""

from typing import TYPE_CHECKING

import numpy as np

from inferlet.testing import reference
from ipc.errors import ErrorCode, Failure
from ipc.types import BoundProgram, PassSpec

if TYPE_CHECKING:
    from inferlet.testing.fake_worker import FakeWorker

Array = np.ndarray


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
        self.appended: list[list[int]] = []

    def run(self) -> None:
        spec = self._spec
        self._stage(spec.prologue, {})
        tokens = self._tokens()
        outputs = self._forward(tokens)
        self.results = self._stage(spec.epilogue, outputs)

    def _tokens(self) -> list[int]:
        operand = self._spec.tokens
        tokens = list(operand.values)
        if operand.is_channel:
            # Consuming takes what was put in this fire, else the front.
            self.new.pop(operand.channel, None)
            made = self._earlier.get(operand.channel)
            tokens = (self._front(operand.channel) if made is None else made).tolist()
        size = self._worker.info.output_vocab_size
        for token in tokens:
            if not -1 <= token < size:
                text = f"token id {token} is outside the vocabulary of {size}"
                raise FireFailed(Failure(ErrorCode.TOKEN_RANGE, text))
        return tokens

    def _forward(self, tokens: list[int]) -> dict[tuple[int, str], Array]:
        spec, rows = self._spec, {}
        for lane, number in enumerate(spec.working_sets):
            history = list(self._worker.working_sets[number])
            start, end = spec.indptr[lane], spec.indptr[lane + 1]
            lane_tokens = [token for token in tokens[start:end] if token >= 0]
            self.appended.append(lane_tokens)
            if len(history) + len(lane_tokens) > self._worker.info.context_length:
                text = "the model's context is full"
                raise FireFailed(Failure(ErrorCode.CONTEXT_LENGTH, text))
            for row in range(start, end):
                if tokens[row] >= 0:
                    history.append(tokens[row])
                if row in spec.readout:
                    rows[row] = self._worker.outputs_after(history)
                    if tokens[row] < 0:  # an absent row's outputs are zeros
                        rows[row] = {name: np.zeros_like(v) for name, v in rows[row].items()}
        return self._readout(rows)

    def _readout(self, rows: dict[int, dict[str, Array]]) -> dict[tuple[int, str], Array]:
        outputs, start = {}, 0
        for lane, count in enumerate(self._spec.readout_counts):
            read = self._spec.readout[start : start + count]
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
