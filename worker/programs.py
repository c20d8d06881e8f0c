"""Stages of a wave, grouped: those of equal program and types run as one stacked call.

A group knows no process: programs are shared by what they are. When a call raises, each instance
runs alone, so that only the guilty ones fail.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ipc.errors import ErrorCode, Failure
from worker.definitions import Stage, StageKey
from worker.eta import executor
from worker.eta.executor import CompiledProgram, StageOutput
from worker.state import Fire, Segment

MAX_COMPILED = 512
MAX_CONSTANT_SETS = 256
# Of what lives at once in a stacked call. A device has more, and longer calls suit it.
MAX_STACKED_BYTES = 1 << 28
MAX_STACKED_BYTES_ON_DEVICE = 1 << 31
MAX_JOINED_BYTES = 1 << 24  # what several calls gave is copied together when each gave so little
Cells = tuple[dict[int, Tensor], dict[int, Tensor]]


@dataclass(slots=True)
class Ran:
    """What one instance got: row `row` of a group's output."""

    output: StageOutput
    row: int


@dataclass(slots=True)
class Work:
    """What a fire in progress keeps from wave to wave."""

    prologue: Ran | None = None
    hidden: list[tuple[list[int], Tensor]] = field(default_factory=list)  # readouts, their rows
    tokens: tuple[Tensor, int] | None = None  # ids that stay on the device: a tensor, which row


class Programs:
    """Compiled programs and their constants on the device, the most recently used ones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._compiled: OrderedDict[StageKey, CompiledProgram] = OrderedDict()
        self._constants: OrderedDict[tuple, list[Tensor]] = OrderedDict()

    def compiled(self, stage: Stage) -> CompiledProgram:
        return _cached(self._compiled, stage.key, MAX_COMPILED, lambda: self._compile(stage))

    def _compile(self, stage: Stage) -> CompiledProgram:
        return executor.compile(stage.program, stage.slot_types, stage.outputs, self.device)

    def most_stacked(self, stage: Stage) -> int:
        """How many instances of it one call may have, for their memory."""
        is_host = self.device.type == "cpu"
        most = MAX_STACKED_BYTES if is_host else MAX_STACKED_BYTES_ON_DEVICE
        try:
            return max(1, most // max(1, self.compiled(stage).peak_bytes))
        except Exception:
            return 1  # it fails when it is run, each for itself

    def constants(self, stages: Sequence[Stage]) -> list[Tensor]:
        """`[G, *shape]` each, or `[1, *shape]` when all instances agree."""
        pools = tuple(stage.constants for stage in stages)
        if not pools[0]:
            return []
        if pools.count(pools[0]) == len(pools):
            pools = pools[:1]
        key = (stages[0].program_id, pools)
        return _cached(
            self._constants, key, MAX_CONSTANT_SETS, lambda: self._stack(stages[0], pools)
        )

    def _stack(self, stage: Stage, pools: Sequence[bytes]) -> list[Tensor]:
        instances = [executor.constant_tensors(stage.program, pool) for pool in pools]
        return [torch.cat(rows).to(self.device) for rows in zip(*instances)]


def _cached(cache: OrderedDict, key: Hashable, limit: int, make: Callable[[], object]) -> object:
    found = cache.get(key)
    if found is None:
        found = cache[key] = make()
        if len(cache) > limit:
            cache.popitem(last=False)
    else:
        cache.move_to_end(key)
    return found


@dataclass(slots=True)
class Group:
    """Finishing fires of a wave whose epilogues run as one call. Single ones are its first
    instances: their rows lie side by side in the batch, too."""

    stage: Stage  # of some fire
    singles: list[Fire] = field(default_factory=list)
    first_row: int = 0  # of the singles
    segments: list[Segment] = field(default_factory=list)  # the others

    @property
    def fires(self) -> list[Fire]:
        return self.singles + [segment.fire for segment in self.segments]

    @property
    def needs_logits(self) -> bool:
        return any(name == "logits" for _, name in self.stage.outputs)


def group_by_key(fires: Sequence[Fire], stage_of: Callable[[Fire], Stage]) -> list[list[Fire]]:
    """Fires whose stages run together, in the order of their first."""
    groups: dict[StageKey, list[Fire]] = {}
    for fire in fires:
        groups.setdefault(stage_of(fire).key, []).append(fire)
    return list(groups.values())


def run_group(
    programs: Programs,
    stages: Sequence[Stage],
    cells: Callable[[CompiledProgram, Sequence[int]], Cells],
    outputs: Callable[[Sequence[int]], dict[tuple[int, str], Tensor]],
) -> StageOutput | list[Ran | Failure]:
    """What all stages got, or a result for each when some has failed or they were too large for one
    call. `cells` (fronts, and what earlier phases of the fires put) and `outputs` give the tensors
    of chosen instances, which are neighbours."""

    def run(chosen: Sequence[int]) -> StageOutput:
        compiled = programs.compiled(stages[chosen[0]])
        constants = programs.constants([stages[i] for i in chosen])
        fronts, earlier = cells(compiled, chosen)
        return compiled.run(len(chosen), fronts, outputs(chosen), constants, earlier)

    size = programs.most_stacked(stages[0])
    if len(stages) <= size:
        return _run_all(stages, range(len(stages)), run)
    chunks = [
        range(start, min(start + size, len(stages))) for start in range(0, len(stages), size)
    ]
    made = [_run_all(stages, chosen, run) for chosen in chunks]
    if all(isinstance(part, StageOutput) and _nbytes(part) <= MAX_JOINED_BYTES for part in made):
        return _joined(made)
    return [ran for part, chosen in zip(made, chunks) for ran in one_by_one(part, len(chosen))]


def _nbytes(output: StageOutput) -> int:
    return sum(made.nbytes for made in (*output.registers.values(), *output.results))


def _joined(parts: Sequence[StageOutput]) -> StageOutput:
    registers = {
        slot: torch.cat([part.registers[slot] for part in parts]) for slot in parts[0].registers
    }
    return StageOutput(registers, [torch.cat(rows) for rows in zip(*(p.results for p in parts))])


def _run_all(
    stages: Sequence[Stage], chosen: range, run: Callable[[Sequence[int]], StageOutput]
) -> StageOutput | list[Ran | Failure]:
    """One call for the chosen; when it raises, one for each."""
    try:
        return run(chosen)
    except Exception as error:
        if len(chosen) == 1:
            return [_failure(stages[chosen[0]], error)]
    results: list[Ran | Failure] = []
    for i in chosen:
        try:
            results.append(Ran(run([i]), 0))
        except Exception as error:
            results.append(_failure(stages[i], error))
    return results


def one_by_one(made: StageOutput | list[Ran | Failure], count: int) -> list[Ran | Failure]:
    """What `run_group` gave, for each of `count` stages."""
    return [Ran(made, row) for row in range(count)] if isinstance(made, StageOutput) else made


def _failure(stage: Stage, error: Exception) -> Failure:
    return Failure(
        ErrorCode.PROGRAM_FAULT,
        f"the {stage.name} failed on the device: {error}",
        stage.name,
        getattr(error, "node", -1),
    )
