"""One handler for each command of an inferlet. An inferlet is not trusted: whatever it may not ask
is a `Violation`, which ends its process and touches nobody else.

Commands of one process are handled in order. Those of a pipeline take effect in its order: what
must wait is queued there; channel puts and stops are immediate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.eta.encode import DecodeError
from worker import passes, settle
from worker.state import (
    CellChange,
    Channel,
    Fire,
    ForkPoint,
    Pass,
    Pipeline,
    Process,
    Run,
    State,
)
from worker.violation import MAX_ID, Violation
from worker.working_set import WorkingSet

MAX_CAPACITY = 1 << 16
MAX_PROGRAM_BYTES = 64 << 20
MAX_SLOTS = 1 << 31  # of one working set
MAX_HANDLES = 1 << 16  # of one kind, alive at once


def handle(state: State, process: Process, command: m.Command) -> None:
    """Carries out one command; Violation when the inferlet may not."""
    HANDLERS[type(command)](state, process, command)


# ---- look-ups


def _get(table: dict[int, Any], kind: str, number: int) -> Any:
    found = table.get(number)
    if found is None:
        raise Violation(f"{kind} {number} does not exist")
    return found


def _add(table: dict[int, Any], kind: str, number: int, value: Any) -> None:
    if number in table or not 0 <= number < MAX_ID:
        raise Violation(f"{kind} {number} exists already, or is out of range")
    if len(table) >= MAX_HANDLES:
        raise Violation(f"more than {MAX_HANDLES} {kind}s at once", ErrorCode.LIMIT)
    table[number] = value


def _open_pipeline(process: Process, number: int) -> Pipeline:
    pipeline = _get(process.pipelines, "pipeline", number)
    if pipeline.closed:
        raise Violation(f"pipeline {number} is closed")
    return pipeline


# ---- definitions


def define_program(state: State, process: Process, command: m.DefineProgram) -> None:
    process.program_bytes += len(command.code)
    if process.program_bytes > MAX_PROGRAM_BYTES:
        raise Violation(f"more than {MAX_PROGRAM_BYTES} bytes of programs", ErrorCode.LIMIT)
    try:
        program_id, program = state.programs.decode(command.code)
    except DecodeError as error:
        raise Violation(f"a program cannot be decoded: {error}") from None
    process.programs[program_id] = program


def define_channel(state: State, process: Process, command: m.DefineChannel) -> None:
    cell, capacity = command.cell, command.capacity
    passes.check_type(cell)
    if not 1 <= capacity <= MAX_CAPACITY:
        raise Violation(f"channel {command.channel} has capacity {capacity}")
    ring = capacity + state.config.run_ahead_window
    _charge(process, ring * cell.nbytes)
    channel = Channel(command.channel, cell, capacity, ring, base=-1)
    _add(process.channels, "channel", command.channel, channel)
    channel.base = state.rings.allocate(cell, ring)
    process.live_channels.add(channel)


def _charge(process: Process, nbytes: int) -> None:
    limit = process.limits.channels
    if process.channel_bytes + nbytes > limit:
        raise Violation(f"the channels take more than {limit} bytes", ErrorCode.LIMIT)
    process.channel_bytes += nbytes


def define_pass(state: State, process: Process, command: m.DefinePass) -> None:
    pass_ = passes.bind(state, process, command.spec)
    _add(process.passes, "pass", command.spec.pass_id, pass_)


def bind_state(state: State, process: Process, command: m.BindState) -> None:
    pass_ = _get(process.passes, "pass", command.pass_id)
    passes.check_sets(command.working_sets, pass_.spec.num_lanes)
    pass_.working_sets = command.working_sets


# ---- channels


def put(state: State, process: Process, command: m.Put) -> None:
    channel = _get(process.channels, "channel", command.channel)
    passes.check_cell(channel, command.data, state.model.output_vocab_size)
    held = channel.held + len(channel.backlog)
    if held >= channel.capacity + channel.accepted_pops:
        if channel.pipeline is not None and channel.pipeline.failed:
            return  # it counted on a fire whose failure the host does not know yet
        raise Violation(f"channel {channel.number} is full")
    if held < channel.capacity:
        state.rings.write(channel.cell, channel.back, command.data)
        channel.written += 1
    else:
        _charge(process, channel.cell.nbytes)
        channel.backlog.append(command.data)


def set_cell(state: State, process: Process, command: m.SetCell) -> None:
    channel: Channel = _get(process.channels, "channel", command.channel)
    passes.check_cell(channel, command.data, state.model.output_vocab_size)
    if channel.held + len(channel.backlog) <= channel.accepted_pops:
        raise Violation(f"channel {channel.number} has no cell to replace")
    pipeline = channel.pipeline
    queue = pipeline.queue if pipeline is not None else ()
    if not any(isinstance(item, Fire | CellChange) for item in queue):
        state.rings.write(channel.cell, channel.front, command.data)
        return
    # Accepted fires keep the old cell: the change waits behind them. A run does not count: the
    # host changes a cell only when all fires that it has allowed are delivered.
    _check_queued(process)
    _charge(process, len(command.data))
    channel.uses += 1
    settle.queue_item(state, pipeline, CellChange(channel, command.data))


def watch(state: State, process: Process, command: m.Watch) -> None:
    channel: Channel = _get(process.channels, "channel", command.channel)
    state.retire()  # cells of fires that the host has not heard of would come before them
    channel.watched = True
    if channel.held:
        indices = [channel.base + n % channel.ring for n in range(channel.taken, channel.written)]
        channel.taken = channel.written
        cells = state.rings.read(channel.cell, indices)
        state.emit(process, m.Cells(channel.number, tuple(cells)))


def drop_channel(state: State, process: Process, command: m.DropChannel) -> None:
    channel = _get(process.channels, "channel", command.channel)
    del process.channels[command.channel]
    channel.dropped = True
    settle.free_channel_if_unused(state, process, channel)


# ---- working sets


def open_working_set(state: State, process: Process, command: m.OpenWorkingSet) -> None:
    _add_set(state, process, command.working_set)


def _add_set(state: State, process: Process, number: int) -> WorkingSet:
    working_set = WorkingSet(state.pool, process, process.root)
    _add(process.working_sets, "working set", number, working_set)
    process.live_sets.add(working_set)
    return working_set


def fork(state: State, process: Process, command: m.Fork) -> None:
    parent: WorkingSet = _get(process.working_sets, "working set", command.parent)
    pipeline = _open_pipeline(process, command.pipeline)
    if parent.pending and parent.user is not pipeline:
        raise Violation(f"working set {command.parent} is busy on another pipeline")
    child = _add_set(state, process, command.child)
    settle.forget_run(pipeline)
    if parent.user is not None:
        settle.forget_run(parent.user)
    if not parent.pending and parent.fork_point is None:
        parent.share_with(child)  # nothing accepted will still change the parent
        return
    _check_queued(process)
    point = ForkPoint(pipeline, parent, child)
    child.fork_point = point
    parent.forks.append(point)
    settle.queue_item(state, pipeline, point)


def reserve(state: State, process: Process, command: m.Reserve) -> None:
    working_set: WorkingSet = _get(process.working_sets, "working set", command.working_set)
    if not 0 <= command.end <= MAX_SLOTS:
        raise Violation(f"a reservation of {command.end} slots")
    working_set.reserve(command.end)


def drop_working_set(state: State, process: Process, command: m.DropWorkingSet) -> None:
    working_set = _get(process.working_sets, "working set", command.working_set)
    del process.working_sets[command.working_set]
    working_set.dropped = True
    settle.release_set_if_unused(process, working_set)


# ---- pipelines


def open_pipeline(state: State, process: Process, command: m.OpenPipeline) -> None:
    if len(process.pipelines) >= process.limits.pipelines:
        limit = process.limits.pipelines
        raise Violation(f"more than {limit} pipelines at once", ErrorCode.LIMIT)
    _add(process.pipelines, "pipeline", command.pipeline, Pipeline(process, command.pipeline))


def submit(state: State, process: Process, command: m.Submit) -> None:
    accepted = _accept(state, process, command.pipeline, command.pass_id, command.seq, 1)
    if accepted is None:
        return
    pipeline, pass_, sets = accepted
    for use in pass_.uses:
        use.channel.accepted_pops += use.pops
    fire = Fire(
        process, pipeline, pass_, command.seq, sets, state.next_order(), lanes=pass_.lanes,
        follows=command.follows,
    )  # fmt: skip
    settle.queue_item(state, pipeline, fire)


def run_ahead(state: State, process: Process, command: m.RunAhead) -> None:
    if command.budget < 1 or not 1 <= command.credits <= state.config.run_ahead_window:
        raise Violation(f"a run of {command.budget} fires with {command.credits} credits")
    accepted = _accept(
        state, process, command.pipeline, command.pass_id, command.first_seq, command.budget
    )
    if accepted is None:
        return
    pipeline, pass_, sets = accepted
    run = Run(
        process, pass_, sets, command.first_seq, command.budget,
        command.credits, state.config.run_ahead_window, state.next_order(),
    )  # fmt: skip
    pipeline.last_run = run
    settle.queue_item(state, pipeline, run)


def _accept(
    state: State, process: Process, number: int, pass_id: int, seq: int, count: int
) -> tuple[Pipeline, Pass, tuple[WorkingSet, ...]] | None:
    """Checks and binds a submit or run; None when it is dropped, for the pipeline has failed."""
    pipeline = _open_pipeline(process, number)
    pass_: Pass = _get(process.passes, "pass", pass_id)
    if seq < pipeline.next_seq or seq + count > MAX_ID:
        raise Violation(f"sequence number {seq} of pipeline {number} was used before")
    if pass_.pipeline not in (None, pipeline):
        raise Violation(f"pass {pass_id} belongs to another pipeline")
    sets = tuple(_get(process.working_sets, "working set", n) for n in pass_.working_sets)
    if any(working_set.pending and working_set.user is not pipeline for working_set in sets):
        raise Violation(f"a working set of pass {pass_id} is busy on another pipeline")
    for use in pass_.uses:
        if use.channel.dropped or use.channel.pipeline not in (None, pipeline):
            raise Violation(f"pass {pass_id} cannot use channel {use.channel.number}")
    pipeline.next_seq = seq + count
    state.expected.discard(pipeline)
    pipeline.parked = False
    if pipeline.failed:
        return None  # it was sent before the failure was known
    _check_queued(process)
    settle.forget_run(pipeline)
    settle.hold(pass_, sets, pipeline)
    return pipeline, pass_, sets


def _check_queued(process: Process) -> None:
    if process.queued >= process.limits.passes:
        raise Violation(f"more than {process.limits.passes} queued passes", ErrorCode.LIMIT)


def credit(state: State, process: Process, command: m.Credit) -> None:
    pipeline = process.pipelines.get(command.pipeline)
    if command.fires < 1:
        raise Violation(f"a credit of {command.fires} fires")
    if pipeline is None:
        return  # closed meanwhile
    runs = (item for item in reversed(pipeline.queue) if isinstance(item, Run))
    run = next(runs, None)
    if run is not None:  # else all of its budget is spent already
        run.credits += command.fires
        settle.forget_undo(run)


def stop(state: State, process: Process, command: m.Stop) -> None:
    pipeline = process.pipelines.get(command.pipeline)
    if pipeline is None:
        return  # closed meanwhile
    run = pipeline.last_run
    if run is None and pipeline.failed:
        return  # the run was dropped: the host did not know of the failure
    if run is None:
        raise Violation(f"pipeline {command.pipeline} has no run to stop")
    first, end = run.first_undoable - 1, run.first_seq + run.started
    if not first <= command.last_seq < end:
        raise Violation(f"the run cannot be stopped at fire {command.last_seq}: [{first}, {end})")
    settle.undo_after(state, pipeline, run, command.last_seq)


def park(state: State, process: Process, command: m.Park) -> None:
    pipeline = process.pipelines.get(command.pipeline)
    if pipeline is not None:
        state.expected.discard(pipeline)
        pipeline.parked = True


def close_pipeline(state: State, process: Process, command: m.ClosePipeline) -> None:
    pipeline = process.pipelines.get(command.pipeline)
    if pipeline is not None:
        pipeline.closed = True
        state.expected.discard(pipeline)
        settle.leave_if_idle(state, pipeline)


def drop_pass(state: State, process: Process, command: m.DropPass) -> None:
    _get(process.passes, "pass", command.pass_id)
    del process.passes[command.pass_id]


HANDLERS: dict[type, Callable[[State, Process, Any], None]] = {
    m.DefineProgram: define_program,
    m.DefineChannel: define_channel,
    m.DefinePass: define_pass,
    m.BindState: bind_state,
    m.Put: put,
    m.SetCell: set_cell,
    m.Watch: watch,
    m.OpenWorkingSet: open_working_set,
    m.Fork: fork,
    m.OpenPipeline: open_pipeline,
    m.Submit: submit,
    m.RunAhead: run_ahead,
    m.Credit: credit,
    m.Stop: stop,
    m.Park: park,
    m.ClosePipeline: close_pipeline,
    m.DropWorkingSet: drop_working_set,
    m.DropChannel: drop_channel,
    m.DropPass: drop_pass,
    m.Reserve: reserve,
}
