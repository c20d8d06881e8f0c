"""What becomes of fires: committed, failed, dropped, undone; and what is left of a process.

Every count of the state changes here or in commands.py. A fire's effect on counts is static but for
absent rows, so it is known when its wave is launched.
"""


from ipc.errors import Failure
from ipc.geometry import Slots
from ipc.messages import Failed
from worker import changes, prefix
from worker.changes import Change
from worker.definitions import Channel, Use
from worker.history import Unread
from worker.holding import (
    forget,
    forget_run,
    leave_if_idle,
    let_channel_go,
    let_go,
    release_set_if_unused,
)
from worker.state import CellChange, Fire, ForkPoint, Pipeline, Process, Run, State, Undo

Grown = list[tuple[int, int]]  # of each lane: its extent, its frozen prefix


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
        forget(sets)
    else:
        _keep_undo(pipeline, run, Undo(fire.seq, moved, sets))
        run.next_fire = None
        run.started += 1
        if run.started == run.budget:
            end_run(state, pipeline, run)
    leave_if_idle(state, pipeline)
    return grown


def commit_single(state: State, fire: Fire, token: int | Unread) -> tuple[int, ...]:
    """`commit` of a single fire. Gives by how much the frozen prefix has grown if not by 1."""
    run, process, pass_, held = fire.run, fire.process, fire.pass_, fire.sets[0]
    before, frozen = held.length, held.frozen
    if run is None:
        _settle_single(state, fire)
    elif run.before is None and fire.pipeline.last_run is run:
        if run.started:
            _keep_undo(fire.pipeline, run, _undo_single(run, fire.seq, held.slots))
        else:
            run.before = held.slots
    end = held.length = held.frozen = before + 1
    if held.reserved < end:
        held.reserved = end
    history = held.history
    if state.config.prefix_cache and history.length == before and held.positions is None:
        if type(token) is int:
            history.tokens.append(token)
        else:
            history.add_unread([token])
        if len(history.tokens) - len(history.keys) * history.page_size >= history.page_size:
            held.enter_pages()
    for use in pass_.uses:
        channel = use.channel
        channel.written += use.appends
        channel.taken = channel.written if channel.watched else channel.taken + use.pops
        if channel.backlog:
            flush_backlog(state, channel)
    process.tokens_in += 1
    process.tokens_out += 1
    if run is not None:
        fire.begun, run.next_fire, run.last_fire = False, None, fire
        run.started += 1
        if run.started == run.budget:
            end_run(state, fire.pipeline, run)
            leave_if_idle(state, fire.pipeline)
    return () if frozen == before else (end - frozen,)


def _settle_single(state: State, fire: Fire) -> None:
    for use in fire.pass_.uses:
        use.channel.accepted_pops -= use.pops
    fire.pipeline.queue.popleft()
    let_go(state, fire.process, fire.pass_, fire.sets)
    leave_if_idle(state, fire.pipeline)


def _undo_single(run: Run, seq: int, before: Slots) -> Undo:
    channels = [(use.channel, use.pops, use.appends) for use in run.pass_.uses]
    num_pages = run.sets[0].pool.pages_for(before.extent)
    return Undo(seq, channels, [(run.sets[0], Change(before, num_pages, []))])


def _spell_out(run: Run) -> None:
    """Fires that have all done the same get a record each."""
    first, run.before = run.before, None
    if first is None:
        return
    for seq in range(max(run.first_undoable, run.first_seq), run.first_seq + run.started):
        end = first.extent + seq - run.first_seq
        after = Slots(end, end, max(first.reserved, end)) if seq > run.first_seq else first
        run.undo.append(_undo_single(run, seq, after))


def _keep_undo(pipeline: Pipeline, run: Run, record: Undo) -> None:
    _spell_out(run)
    if pipeline.last_run is run:
        run.undo.append(record)
    else:
        forget(record.sets)


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
        forget(run.undo.popleft().sets)


def undo_after(state: State, pipeline: Pipeline, run: Run, last_seq: int) -> None:
    """The state becomes exactly that after fire `last_seq`, and the run ends there."""
    end_run(state, pipeline, run)
    _spell_out(run)
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
        state.turns.pop(pipeline, None)
    process.active.clear()
