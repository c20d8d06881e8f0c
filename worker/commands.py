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
from worker import channel_commands, holding, passes, settle
from worker.admission import add, check_queued, get
from worker.definitions import Pass
from worker.state import Fire, ForkPoint, Pipeline, Process, Run, State
from worker.violation import MAX_ID, Violation, counted
from worker.working_set import WorkingSet

MAX_CAPACITY = 1 << 16
MAX_PROGRAM_BYTES = 64 << 20
MAX_SLOTS = 1 << 31  # of one working set
MAX_HANDLES = 1 << 16  # of one kind, alive at once


def handle(state: State, process: Process, command: m.Command) -> None:
    """Carries out one command; Violation when the inferlet may not."""
    HANDLERS[type(command)](state, process, command)


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


def define_pass(state: State, process: Process, command: m.DefinePass) -> None:
    pass_ = passes.bind(state, process, command.spec)
    add(process.passes, "pass", command.spec.pass_id, pass_)


def bind_state(state: State, process: Process, command: m.BindState) -> None:
    pass_ = get(process.passes, "pass", command.pass_id)
    passes.check_sets(command.working_sets, pass_.spec.num_lanes)
    pass_.working_sets = command.working_sets


# ---- working sets


def open_working_set(state: State, process: Process, command: m.OpenWorkingSet) -> None:
    _add_set(state, process, command.working_set)


def _add_set(state: State, process: Process, number: int) -> WorkingSet:
    working_set = WorkingSet(state.pool, process, process.root)
    add(process.working_sets, "working set", number, working_set)
    process.live_sets.add(working_set)
    return working_set


def fork(state: State, process: Process, command: m.Fork) -> None:
    parent: WorkingSet = get(process.working_sets, "working set", command.parent)
    pipeline = find_open_pipeline(process, command.pipeline)
    if parent.pending and parent.user is not pipeline:
        raise Violation(f"working set {command.parent} is busy on another pipeline")
    child = _add_set(state, process, command.child)
    holding.forget_run(pipeline)
    if parent.user is not None:
        holding.forget_run(parent.user)
    if not parent.pending and parent.fork_point is None:
        parent.share_with(child)  # nothing accepted will still change the parent
        return
    check_queued(process)
    point = ForkPoint(pipeline, parent, child)
    child.fork_point = point
    parent.forks.append(point)
    holding.queue_item(state, pipeline, point)


def reserve(state: State, process: Process, command: m.Reserve) -> None:
    working_set: WorkingSet = get(process.working_sets, "working set", command.working_set)
    if not 0 <= command.end <= MAX_SLOTS:
        raise Violation(f"a reservation of {command.end} slots")
    working_set.reserve(command.end)


def drop_working_set(state: State, process: Process, command: m.DropWorkingSet) -> None:
    working_set = get(process.working_sets, "working set", command.working_set)
    del process.working_sets[command.working_set]
    working_set.dropped = True
    holding.release_set_if_unused(process, working_set)


# ---- pipelines


def find_open_pipeline(process: Process, number: int) -> Pipeline:
    pipeline = get(process.pipelines, "pipeline", number)
    if pipeline.closed:
        raise Violation(f"pipeline {number} is closed")
    return pipeline


def open_pipeline(state: State, process: Process, command: m.OpenPipeline) -> None:
    if len(process.pipelines) >= process.limits.pipelines:
        limit = process.limits.pipelines
        message = f"more than {counted(limit, 'pipeline')} at once"
        raise Violation(message, ErrorCode.LIMIT, "pipelines")
    add(process.pipelines, "pipeline", command.pipeline, Pipeline(process, command.pipeline))


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
    holding.queue_item(state, pipeline, fire)


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
    holding.queue_item(state, pipeline, run)


def _accept(
    state: State, process: Process, number: int, pass_id: int, seq: int, count: int
) -> tuple[Pipeline, Pass, tuple[WorkingSet, ...]] | None:
    """Checks and binds a submit or run; None when it is dropped, for the pipeline has failed."""
    pipeline = find_open_pipeline(process, number)
    pass_: Pass = get(process.passes, "pass", pass_id)
    if seq < pipeline.next_seq or seq + count > MAX_ID:
        raise Violation(f"sequence number {seq} of pipeline {number} was used before")
    if pass_.pipeline not in (None, pipeline):
        raise Violation(f"pass {pass_id} belongs to another pipeline")
    sets = tuple(get(process.working_sets, "working set", n) for n in pass_.working_sets)
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
    check_queued(process)
    holding.forget_run(pipeline)
    holding.hold(pass_, sets, pipeline)
    return pipeline, pass_, sets


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
        holding.leave_if_idle(state, pipeline)


def drop_pass(state: State, process: Process, command: m.DropPass) -> None:
    get(process.passes, "pass", command.pass_id)
    del process.passes[command.pass_id]


HANDLERS: dict[type, Callable[[State, Process, Any], None]] = {
    m.DefineProgram: define_program,
    m.DefineChannel: channel_commands.define_channel,
    m.DefinePass: define_pass,
    m.BindState: bind_state,
    m.Put: channel_commands.put,
    m.SetCell: channel_commands.set_cell,
    m.Watch: channel_commands.watch,
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
    m.DropChannel: channel_commands.drop_channel,
    m.DropPass: drop_pass,
    m.Reserve: reserve,
}
