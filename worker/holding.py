"""What accepted items hold: channels, working sets, places in their pipeline's queue. And when what
was dropped meanwhile is released, because nobody holds it any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker import changes
from worker.changes import Change
from worker.definitions import Channel, Pass
from worker.state import CellChange, Fire, ForkPoint, Pipeline, Process, Run, State
from worker.working_set import WorkingSet


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
    if isinstance(item, ForkPoint | CellChange):
        state.turns[pipeline] = None
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


def forget_run(pipeline: Pipeline) -> None:
    """Something else was accepted: no Stop takes the last run's fires back any more."""
    run, pipeline.last_run = pipeline.last_run, None
    if run is None:
        return
    run.before = None
    while run.undo:
        forget(run.undo.popleft().sets)


def forget(sets: Sequence[tuple[WorkingSet, Change]]) -> None:
    for held, change in sets:
        changes.forget(held, change)
