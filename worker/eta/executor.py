"""Runs one program for many instances at once. Owns the order of kernels and the life of values;
refuses to know channels, passes and rings.

Storage of a value with shape `[G, *shape]`: f32 float32, i32 int32, u32 int32 (bit pattern),
bool bool, bf16 and f16 as they are. `constants` may be `[1, *shape]` when all instances agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ipc.eta.check import OutputTypes, check
from ipc.eta.graph import Node, Program
from ipc.types import DType, TensorType
from worker.eta import indexing, ranking, rows  # noqa: F401 - they register their kernels
from worker.eta.kernels import KERNELS, STORAGE, Call, Kernel

Outputs = Mapping[tuple[int, str], Tensor]

# Steps are short, and the inferlets of the last wave run meanwhile: threads that wait for each other
# on a busy core take ten times as long as one alone. So a stage leaves most threads to the model.
THREAD_SHARE = 4


@dataclass(frozen=True)
class StageOutput:
    registers: dict[int, Tensor]  # slot -> what was put last, also when it was taken since
    results: list[Tensor]


class KernelError(Exception):
    """A kernel failed. Ops are total on values, so it is memory, a device fault, or our own bug."""

    def __init__(self, node: int, result: TensorType, cause: Exception) -> None:
        super().__init__(f"node {node}, which makes {result}: {cause}")
        self.node = node


@dataclass(frozen=True)
class _Step:
    """Computes one node and forgets the operands that nobody needs any more."""

    node: int
    run: Kernel
    call: Call
    args: tuple[int, ...]
    last_uses: tuple[int, ...]


class CompiledProgram:
    """A checked program with its kernels bound. Make it with `compile`."""

    def __init__(self, program: Program, types: list[TensorType], device: torch.device) -> None:
        self.program = program
        self.fronts_needed = program.fronts
        self.earlier_needed = program.earlier
        self.result_types = [types[node] for node in program.results]
        self._puts = program.last_puts
        self._sources: list[tuple[int, Node]] = []
        self._steps: list[_Step] = []
        kept = {*program.results, *self._puts.values()}
        last_use = {arg: index for index, node in enumerate(program.nodes) for arg in node.args}
        for index, node in enumerate(program.nodes):
            if node.op.name in ("front", "earlier", "output", "constant"):
                self._sources.append((index, node))
                continue
            call = Call(tuple(types[i] for i in node.args), types[index], node.attr_map, device)
            over = {arg for arg in node.args if last_use[arg] == index} - kept
            self._steps.append(_Step(index, KERNELS[node.op.name], call, node.args, tuple(over)))
        self.peak_bytes = self._peak_bytes(types)

    def _peak_bytes(self, types: Sequence[TensorType]) -> int:
        """Of one instance: what lives at once, and as much as its result for a kernel's scratch."""
        live = peak = sum(types[index].nbytes for index, _ in self._sources)
        for step in self._steps:
            live += types[step.node].nbytes
            peak = max(peak, live + types[step.node].nbytes)
            live -= sum(types[arg].nbytes for arg in step.last_uses)
        return peak

    def run(
        self,
        count: int,
        fronts: Mapping[int, Tensor],
        outputs: Outputs,
        constants: Sequence[Tensor],
        earlier: Mapping[int, Tensor] | None = None,
    ) -> StageOutput:
        """`count` instances. `fronts[slot]`, what an `earlier` phase of the fires put on a slot, and
        `outputs[lane, name]` are `[count, *shape]`."""
        values = self._source_values(fronts, earlier or {}, outputs, constants)
        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, threads // THREAD_SHARE))
        try:
            self._run_steps(values)
        finally:
            torch.set_num_threads(threads)
        registers = {slot: _repeated(values[node], count) for slot, node in self._puts.items()}
        results = [_repeated(values[node], count) for node in self.program.results]
        return StageOutput(registers, results)

    def _run_steps(self, values: dict[int, Tensor]) -> None:
        for step in self._steps:
            try:
                values[step.node] = step.run(step.call, *(values[arg] for arg in step.args))
            except Exception as error:
                raise KernelError(step.node, step.call.result, error) from error
            for arg in step.last_uses:
                del values[arg]

    def _source_values(
        self,
        fronts: Mapping[int, Tensor],
        earlier: Mapping[int, Tensor],
        outputs: Outputs,
        constants: Sequence[Tensor],
    ) -> dict[int, Tensor]:
        values: dict[int, Tensor] = {}
        pool = iter(constants)
        for index, node in self._sources:
            if node.op.name == "front":
                values[index] = fronts[node.attrs[0]]
            elif node.op.name == "earlier":
                values[index] = earlier[node.attrs[0]]
            elif node.op.name == "output":
                values[index] = outputs[node.attrs]
            else:
                values[index] = next(pool)
        return values


def _repeated(value: Tensor, count: int) -> Tensor:
    return value if value.shape[0] == count else value.expand(count, *value.shape[1:])


def compile(
    program: Program,
    slot_types: Sequence[TensorType],
    output_types: OutputTypes,
    device: torch.device | str,
) -> CompiledProgram:
    """Checks the program and binds kernels; raises `ipc.eta.check.CheckError`."""
    types = check(program, slot_types, output_types)
    return CompiledProgram(program, types, torch.device(device))


def constant_tensors(program: Program, pool: bytes) -> list[Tensor]:
    """The constants `[1, *shape]` of one instance's pool, on the host; ValueError for a pool of
    another size."""
    size = sum(made.nbytes for made in program.constant_types)
    if len(pool) != size:
        raise ValueError(f"the constant pool has {len(pool)} bytes; the program takes {size}")
    tensors, at = [], 0
    for made in program.constant_types:
        raw = bytearray(pool[at : at + made.nbytes])
        at += made.nbytes
        if made.dtype == DType.bool_:
            flat = torch.frombuffer(raw, dtype=torch.uint8) != 0
        else:
            flat = torch.frombuffer(raw, dtype=STORAGE[made.dtype])
        tensors.append(flat.reshape(1, *made.shape))
    return tensors
