"""Binds a PassSpec to channels and programs. Checks all that the SDK checked: it is not trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ipc import accounting
from ipc.eta import work
from ipc.eta.check import CheckError, check
from ipc.eta.graph import SPENT, Program
from ipc.eta.ops import CARRY, INDEX
from ipc.types import MAX_CELL_BYTES, BoundProgram, DType, PassSpec, TensorType
from worker import ports
from worker.definitions import Channel, Lanes, Outputs, Pass, Stage, Use
from worker.state import Process, State
from worker.violation import Violation

MAX_RANK = 4
INTEGERS = (DType.i32, DType.u32)


def check_type(cell: TensorType) -> None:
    if len(cell.shape) > MAX_RANK or any(not 1 <= extent < 1 << 31 for extent in cell.shape):
        raise Violation(f"a cell of shape {list(cell.shape)}")
    if cell.nbytes > MAX_CELL_BYTES:
        raise Violation(f"a cell of {cell.nbytes} bytes")


def check_cell(channel: Channel, data: bytes, vocab_size: int) -> None:
    """Whether `data` is a cell of the channel; notes ids that are no token."""
    cell = channel.cell
    if len(data) != cell.nbytes:
        raise Violation(f"channel {channel.number} holds {cell}, not {len(data)} bytes")
    if cell.dtype == DType.bool_ and max(data) > 1:
        raise Violation(f"a bool of channel {channel.number} is neither 0 nor 1")
    if cell.dtype == DType.i32 and not channel.may_be_absent:
        ids = memoryview(data).cast("i")
        channel.may_be_absent = not (0 <= min(ids) and max(ids) < vocab_size)


def check_sets(numbers: Sequence[int], num_lanes: int) -> None:
    if len(numbers) != num_lanes or len(set(numbers)) != num_lanes:
        raise Violation(f"working sets {list(numbers)} for {num_lanes} lanes")


def bind(state: State, process: Process, spec: PassSpec) -> Pass:
    """The pass, bound. Violation when the spec is not one that an SDK could have made."""
    _check_rows(spec, state.config.max_embed_length)
    check_sets(spec.working_sets, spec.num_lanes)
    tokens, lanes = _bind_tokens(state, process, spec)
    programs = {bound.program_id: _program(process, bound) for _, bound in _bound(spec)}
    uses = _bind_uses(process, spec, programs)
    _check_fold(spec, programs)
    prologue = programs[spec.prologue.program_id] if spec.prologue is not None else None
    left = _left_by_prologue(spec, programs)
    _check_expectations(spec, programs, left)
    stages = {
        name: _bind_stage(state, process, spec, name, bound, programs)
        for name, bound in _bound(spec)
    }
    for name, stage in stages.items():
        put = [use.channel for use in uses if use.new_from == name]
        stage.appended = tuple(stage.slot_of[channel] for channel in put)
    bound_ports = ports.bind(process, spec, prologue)
    return Pass(
        spec,
        tokens,
        spec.tokens.channel in left,
        lanes,
        [end - start for start, end in pairwise(spec.indptr)],
        uses,
        stages.get("prologue"),
        stages.get("epilogue"),
        spec.working_sets,
        ports=bound_ports,
        steps=sum(stage.steps for stage in stages.values()),
        is_single=bound_ports is None and _is_single(spec, uses),
    )


def _is_single(spec: PassSpec, uses: Sequence[Use]) -> bool:
    return (
        spec.num_rows == spec.num_lanes == 1
        and spec.tokens.is_channel
        and spec.prologue is None
        and spec.epilogue is not None
        and tuple(spec.readout_counts) == (1,)
        and not any(use.pops_if_present for use in uses)
    )


def _bound(spec: PassSpec) -> list[tuple[str, BoundProgram]]:
    stages = (("prologue", spec.prologue), ("epilogue", spec.epilogue))
    return [(name, bound) for name, bound in stages if bound is not None]


def _check_rows(spec: PassSpec, max_rows: int) -> None:
    rows, indptr, counts = spec.num_rows, spec.indptr, spec.readout_counts
    if not 1 <= rows <= max_rows:
        raise Violation(f"a pass of {rows} rows; the most is {max_rows}")
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != rows:
        raise Violation(f"indptr {list(indptr)} of {rows} rows")
    if any(end < start for start, end in pairwise(indptr)):
        raise Violation("indptr decreases")
    if len(counts) != spec.num_lanes or min(counts) < 0:
        raise Violation(f"readout counts {list(counts)} for {spec.num_lanes} lanes")
    if spec.num_readouts > max_rows:
        raise Violation(f"{spec.num_readouts} rows are read out; the most is {max_rows}")
    if spec.readout_channel < 0 and (spec.readout or spec.indptr_channel < 0):
        _check_readout(spec)
    elif spec.readout:
        raise Violation("rows to read out from a list and a channel")
    elif spec.readout_channel < 0 and max(counts) > 1:
        raise Violation("a lane has one last row")


def _check_readout(spec: PassSpec) -> None:
    indptr, counts = spec.indptr, spec.readout_counts
    if spec.num_readouts != len(spec.readout):
        raise Violation(f"readout counts {list(counts)} for {len(spec.readout)} rows")
    if spec.indptr_channel >= 0:
        if any(not 0 <= row < spec.num_rows for row in spec.readout):
            raise Violation("a row is read out that does not exist")
        return  # whose rows they are is known when a fire's offsets are
    at = 0
    for count, start, end in zip(counts, indptr, indptr[1:]):
        if any(not start <= row < end for row in spec.readout[at : at + count]):
            raise Violation("a lane reads out a row that is not its own")
        at += count


def _check_fold(spec: PassSpec, programs: dict[bytes, Program]) -> None:
    """Whether the count that freezes slots is consumed just when a stage puts it."""
    fold = spec.placement.fold if spec.placement is not None else None
    if fold is None or not fold.is_channel:
        return
    puts = any(
        bound.channels[slot] == fold.channel
        for _, bound in _bound(spec)
        for slot in programs[bound.program_id].last_puts
    )
    if spec.placement.consumes_fold != puts:
        raise Violation("`fold` is consumed by a pass that does not put it, or the other way round")


def _bind_tokens(
    state: State, process: Process, spec: PassSpec
) -> tuple[Channel | None, Lanes | None]:
    if spec.tokens.is_channel:
        channel = _channel(process, spec.tokens.channel)
        if channel.cell != TensorType(DType.i32, (spec.num_rows,)):
            raise Violation(f"{spec.num_rows} token ids from a channel of {channel.cell}")
        return channel, None
    values = spec.tokens.values
    if len(values) != spec.num_rows:
        raise Violation(f"{len(values)} token ids for {spec.num_rows} rows")
    if min(values) < -1 or max(values) >= state.model.output_vocab_size:
        raise Violation("a token id outside the vocabulary")
    return None, Lanes(values, spec.indptr)


def _channel(process: Process, number: int) -> Channel:
    channel = process.channels.get(number)
    if channel is None:
        raise Violation(f"channel {number} does not exist")
    return channel


def _program(process: Process, bound: BoundProgram) -> Program:
    program = process.programs.get(bound.program_id)
    if program is None:
        raise Violation("a pass uses a program that was not defined")
    if len(bound.channels) != program.num_slots or len(set(bound.channels)) != program.num_slots:
        raise Violation(f"channels {list(bound.channels)} for {program.num_slots} channel slots")
    return program


def _bind_uses(
    process: Process, spec: PassSpec, programs: dict[bytes, Program]
) -> tuple[Use, ...]:
    effects = accounting.fire_effects(spec, lambda program_id: programs[program_id].slot_events())
    for number, effect in effects.items():
        _channel(process, number).fed_by_device |= effect.puts
    return tuple(
        Use(
            _channel(process, number), effect.needs_front, int(effect.pops),
            effect.pops_if_present, int(effect.appends), effect.new_from,
        )
        for number, effect in effects.items()
    )  # fmt: skip


def _left_by_prologue(spec: PassSpec, programs: dict[bytes, Program]) -> dict[int, str]:
    """channel -> what an epilogue finds there of what the prologue has put."""
    if spec.prologue is None:
        return {}
    leaves = programs[spec.prologue.program_id].leaves()
    left = {spec.prologue.channels[slot]: state for slot, state in leaves.items()}
    for channel, kind in accounting.ports(spec):
        if kind == accounting.CONSUME and channel in left:
            left[channel] = SPENT
    return left


def _check_expectations(
    spec: PassSpec, programs: dict[bytes, Program], left: dict[int, str]
) -> None:
    """Whether each stage was recorded for what it will find: only then are its takes right."""
    for name, bound in _bound(spec):
        program = programs[bound.program_id]
        for slot, channel in enumerate(bound.channels):
            found = left.get(channel, "") if name == "epilogue" else ""
            if not program.is_recorded_for(slot, found):
                raise Violation(f"the {name} expects other values on channel {channel}")


def _bind_stage(
    state: State,
    process: Process,
    spec: PassSpec,
    name: str,
    bound: BoundProgram,
    programs: dict[bytes, Program],
) -> Stage:
    program = programs[bound.program_id]
    channels = tuple(_channel(process, number) for number in bound.channels)
    slot_types = tuple(channel.cell for channel in channels)
    outputs = _outputs(state, spec, program) if name == "epilogue" else {}
    try:
        types = check(program, slot_types, outputs)
    except CheckError as error:
        raise Violation(f"{name}: {error}") from None
    if bool(program.results) != (name == "epilogue" and spec.has_results):
        raise Violation(f"the {name} gives results that the pass does not announce")
    if len(bound.constants) != sum(made.nbytes for made in program.constant_types):
        raise Violation(f"{len(bound.constants)} bytes of constants for the {name}")
    _note_absent_puts(program, types, channels, state.model.output_vocab_size)
    readout_counts = spec.readout_counts if name == "epilogue" else ()
    outputs_key = tuple(sorted(outputs.items()))
    key = state.programs.key(bound.program_id, slot_types, outputs_key, readout_counts)
    return Stage(
        name, bound.program_id, program, channels, slot_types, outputs, bound.constants, key,
        dict(zip(channels, range(len(channels)))), work.of_program(program, types),
    )  # fmt: skip


def _outputs(state: State, spec: PassSpec, program: Program) -> Outputs:
    """Types of the model outputs that the program reads; others of the pass are not made."""
    found: Outputs = {}
    for lane, output in program.outputs():
        if lane >= spec.num_lanes or spec.readout_counts[lane] == 0:
            raise Violation(f"output {output!r} of lane {lane}, which reads no row out")
        try:
            found[lane, output] = state.model.output_type(output, spec.readout_counts[lane])
        except KeyError:
            raise Violation(f"the model has no output {output!r}") from None
    return found


def _note_absent_puts(
    program: Program, types: Sequence[TensorType], channels: Sequence[Channel], vocab_size: int
) -> None:
    """Marks channels that may get a value from the device that is no token."""
    bounds = _bounds(program, types)
    for effect in program.effects:
        if effect.op.name == "put" and bounds[effect.node] > vocab_size:
            channels[effect.slot].may_be_absent = True


def _bounds(program: Program, types: Sequence[TensorType]) -> list[float]:
    """For each node a bound: by construction all of its elements are in `[0, bound)`."""
    bounds: list[float] = []
    for node in program.nodes:
        # What a conditional or indexed op passes on is among its values, not its selectors.
        values = node.args[1:] if node.op.name == "select" else node.args
        values = values[:1] if node.op.name in ("gather", "gather_row", "pick") else values
        if INDEX in node.op.traits:
            bounds.append((types[node.args[0]].shape or (1,))[-1])
        elif CARRY in node.op.traits or (node.op.name == "cast" and node.attrs[0] in INTEGERS):
            bounds.append(max((bounds[value] for value in values), default=math.inf))
        else:
            bounds.append(math.inf)
    return bounds
