"""What becomes of fires: committed, failed, dropped, undone; and when what they used is released.

Every count of the state changes here or in commands.py. A fire's effect on counts is static but for
absent rows, so it is known when its wave is launched.
"""

from collections.abc import Sequence

from ipc.errors import Failure
from ipc.messages import Failed
from worker import changes, prefix
from worker.changes import Change
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
    Undo,
    Use,
)
from worker.working_set import WorkingSet

Grown = list[tuple[int, int]]  # of each lane: its extent, its frozen prefix

# ---- accepted items hold what they use


def hold(pass_: Pass, sets: Sequence[WorkingSet], pipeline: Pipeline) -> None:
    pass_.pipeline = pipeline
    for use in pass_.uses:
        use.channel.pipeline = pipeline
        use.channel.uses += 1
    for working_set in sets:
        take_over(working_set, pipeline)
        working_set.pending += 1


def take_over(working_set: WorkingSet, pipeline: Pipeline) -> None:
    """The pipeline uses the set from now on: what an earlier one did is settled for good."""
    if working_set.user is not None and working_set.user is not pipeline:
        forget_run(working_set.user)
    working_set.user = pipeline


def let_go(state: State, process: Process, pass_: Pass, sets: Sequence[WorkingSet]) -> None:
    """An accepted fire or run has settled."""
    process.queued -= 1
    for use in pass_.uses:
        let_channel_go(state, process, use.channel)
    for working_set in sets:
        let_set_go(process, working_set)


def let_channel_go(state: State, process: Process, channel: Channel) -> None:
    channel.uses -= 1
    free_channel_if_unused(state, process, channel)


def free_channel_if_unused(state: State, process: Process, channel: Channel) -> None:
    if channel.dropped and channel.uses == 0 and channel in process.live_channels:
        process.live_channels.remove(channel)
        process.channel_bytes -= channel.ring * channel.cell.nbytes
        process.channel_bytes -= len(channel.backlog) * channel.cell.nbytes
        state.rings.free(channel.cell, channel.base, channel.ring)


def let_set_go(process: Process, working_set: WorkingSet) -> None:
    working_set.pending -= 1
    release_set_if_unused(process, working_set)


def release_set_if_unused(process: Process, working_set: WorkingSet) -> None:
    is_used = working_set.pending or working_set.forks or working_set.fork_point
    if working_set.dropped and not is_used:
        working_set.release()
        process.live_sets.discard(working_set)


def queue_item(state: State, pipeline: Pipeline, item: Fire | Run | ForkPoint | CellChange) -> None:
    pipeline.queue.append(item)
    pipeline.process.queued += 1
    pipeline.process.active[pipeline] = None
    state.active[pipeline.process] = None


def leave_if_idle(state: State, pipeline: Pipeline) -> None:
    """A pipeline without a queue is not looked at again; a closed one is gone."""
    process = pipeline.process
    if pipeline.queue:
        return
    process.active.pop(pipeline, None)
    if not process.active:
        state.active.pop(process, None)
    if pipeline.closed and process.pipelines.get(pipeline.number) is pipeline:
        del process.pipelines[pipeline.number]


# ---- the ends of a fire


def commit(state: State, fire: Fire) -> Grown:
    """The fire happened, with all of its effects at once. Gives how its working sets have grown."""
    run, pipeline, process = fire.run, fire.pipeline, fire.process
    if fire.view is None:
        sets = [(held, changes.append(held, n)) for held, n in zip(fire.sets, fire.appended)]
    else:
        sets = [
            (held, changes.commit(held, lane.after))
            for held, lane in zip(fire.sets, fire.view.placed)
        ]
    grown = [
        (held.length - change.before.extent, held.frozen - change.before.folded)
        for held, change in sets
    ]
    prefix.record(state, fire)
    moved = [_apply(state, use) for use in fire.pass_.uses]
    process.tokens_in += fire.num_rows
    process.tokens_out += fire.pass_.spec.num_readouts if fire.pass_.epilogue else 0
    fire.work = None
    if run is None:
        for use in fire.pass_.uses:
            use.channel.accepted_pops -= use.pops
        pipeline.queue.popleft()
        let_go(state, process, fire.pass_, fire.sets)
        _forget(sets)
    else:
        run.next_fire = None
        run.started += 1
        _keep_undo(pipeline, run, Undo(fire.seq, moved, sets))
        if run.started == run.budget:
            end_run(state, pipeline, run)
    leave_if_idle(state, pipeline)
    return grown


def _keep_undo(pipeline: Pipeline, run: Run, record: Undo) -> None:
    if pipeline.last_run is run:
        run.undo.append(record)
    else:
        _forget(record.sets)


def _apply(state: State, use: Use) -> tuple[Channel, int, int]:
    channel = use.channel
    popped = use.pops or int(use.pops_if_present and channel.held > 0)
    channel.taken += popped
    channel.written += use.appends
    if channel.watched:
        channel.taken = channel.written
    if channel.backlog:
        flush_backlog(state, channel)
    return channel, popped, use.appends


def flush_backlog(state: State, channel: Channel) -> None:
    """Host puts that waited for room go into the ring, oldest first."""
    while channel.backlog and channel.held < channel.capacity:
        state.rings.write(channel.cell, channel.back, channel.backlog.popleft())
        channel.written += 1
        channel.pipeline.process.channel_bytes -= channel.cell.nbytes


def fail(state: State, fire: Fire, failure: Failure) -> None:
    """The fire commits nothing and fails its pipeline; what was accepted after it is dropped."""
    pipeline = fire.pipeline
    _abandon(state, fire)
    pipeline.failed, pipeline.failed_seq = True, fire.seq
    state.emit(fire.process, Failed(pipeline.number, fire.seq, failure))
    state.expected.discard(pipeline)
    drop_queue(state, pipeline)


def drop_queue(state: State, pipeline: Pipeline) -> None:
    """Accepted fires are dropped. Forks still happen: the child has the state that is left."""
    process = pipeline.process
    items, kept = list(pipeline.queue), []
    pipeline.queue.clear()
    for item in items:
        if isinstance(item, Fire):
            _abandon(state, item)
            for use in item.pass_.uses:
                use.channel.accepted_pops -= use.pops
            let_go(state, process, item.pass_, item.sets)
        elif isinstance(item, Run):
            end_run(state, pipeline, item)
        elif isinstance(item, CellChange):
            process.queued -= 1
            process.channel_bytes -= len(item.data)
            let_channel_go(state, process, item.channel)
        else:
            kept.append(item)
    pipeline.queue.extend(kept)
    leave_if_idle(state, pipeline)


def _abandon(state: State, fire: Fire) -> None:
    """Gives back the room that a fire in progress had taken."""
    if fire.begun:
        prefix.end(state, fire)
        for working_set in fire.sets:
            if working_set.change is not None:
                changes.revert(working_set, working_set.change)
            working_set.truncate(working_set.length)
        give_back_spare(state, fire)
    fire.begun, fire.work, fire.view = False, None, None


def give_back_spare(state: State, fire: Fire) -> None:
    """Pages that were taken in case that the rows needed them."""
    state.pool.release(fire.spare)
    fire.spare = []


# ---- forks and changes of cells, when their turn has come


def apply_fork(process: Process, fork: ForkPoint) -> None:
    fork.child.fork_point = None
    fork.parent.forks.remove(fork)
    fork.parent.share_with(fork.child)
    process.queued -= 1
    release_set_if_unused(process, fork.parent)
    release_set_if_unused(process, fork.child)


def apply_change(state: State, process: Process, change: CellChange) -> None:
    channel = change.channel
    if channel.held:
        state.rings.write(channel.cell, channel.front, change.data)
    process.queued -= 1
    process.channel_bytes -= len(change.data)
    let_channel_go(state, process, channel)


# ---- runs


def end_run(state: State, pipeline: Pipeline, run: Run) -> None:
    """No more fires of it. A Stop may still undo the last ones."""
    if run.ended:
        return
    run.ended = True
    if run.next_fire is not None:
        _abandon(state, run.next_fire)
        run.next_fire = None
    if run in pipeline.queue:
        pipeline.queue.remove(run)
    let_go(state, pipeline.process, run.pass_, run.sets)


def forget_undo(run: Run) -> None:
    """More credits came: drops the records of fires that no Stop can name any more."""
    while run.undo and run.undo[0].seq < run.first_undoable:
        _forget(run.undo.popleft().sets)


def forget_run(pipeline: Pipeline) -> None:
    """Something else was accepted: no Stop takes the last run's fires back any more."""
    run, pipeline.last_run = pipeline.last_run, None
    while run is not None and run.undo:
        _forget(run.undo.popleft().sets)


def _forget(sets: Sequence[tuple[WorkingSet, Change]]) -> None:
    for held, change in sets:
        changes.forget(held, change)


def undo_after(state: State, pipeline: Pipeline, run: Run, last_seq: int) -> None:
    """The state becomes exactly that after fire `last_seq`, and the run ends there."""
    end_run(state, pipeline, run)
    while run.undo and run.undo[-1].seq > last_seq:
        record = run.undo.pop()
        for channel, popped, appended in record.channels:
            channel.written -= appended
            channel.taken = channel.written if channel.watched else channel.taken - popped
        for held, change in record.sets:
            changes.revert(held, change)
    if pipeline.failed and pipeline.failed_seq > last_seq:
        pipeline.failed = False  # the fire that failed has not happened
    forget_run(pipeline)
    leave_if_idle(state, pipeline)


# ---- the end of a process


def release_process(state: State, process: Process) -> None:
    """All that the process owned is free."""
    process.ended = True
    state.active.pop(process, None)
    state.expected = {pipeline for pipeline in state.expected if pipeline.process is not process}
    for pipeline in process.pipelines.values():
        for item in pipeline.queue:
            fire = item.next_fire if isinstance(item, Run) else item
            if isinstance(fire, Fire):
                prefix.end(state, fire)
    for working_set in process.live_sets:
        working_set.release()
    for channel in process.live_channels:
        state.rings.free(channel.cell, channel.base, channel.ring)
    process.live_sets.clear()
    if process.pages:
        state.recharge(process)
    process.live_channels.clear()
    for pipeline in process.pipelines.values():
        pipeline.queue.clear()
    process.active.clear()
