"""What heads the pipelines: forks and changes whose turn has come, and fires that are ready.

A fire is ready when it heads its pipeline, every channel whose front it needs holds a cell, every
channel it appends to has room, its working sets exist, and nobody is computing the same prefix.
"""

from __future__ import annotations

from ipc.errors import ErrorCode, Failure
from worker import ports, prefix, settle
from worker.definitions import Lanes
from worker.holding import leave_if_idle
from worker.state import CellChange, Fire, ForkPoint, Pipeline, Process, Run, State
from worker.violation import counted

FOR_OTHERS = "waits for an equal prompt"


class Heads:
    def __init__(self, state: State) -> None:
        self.state = state
        self.waiting: dict[Pipeline, str] = {}  # why the head of a pipeline was not ready
        self.skipped: dict[Fire, int] = {}  # rows that the cache seems to have

    def look(self) -> list[Fire]:
        """Ready fires: the first of each process, then the second of each, …"""
        self.waiting.clear()
        self.skipped.clear()
        if self.state.turns:
            self._advance()
        each = [self._ready_of(process) for process in list(self.state.active)]
        each = [fires for fires in each if fires]
        if all(len(fires) == 1 for fires in each):
            return [fire for (fire,) in each]
        ready = []
        for place in range(max(map(len, each))):
            ready += [fires[place] for fires in each if place < len(fires)]
        return ready

    # ---- forks and changes of cells

    def _advance(self) -> None:
        """Carries out those whose turn has come, until none is left."""
        changed = True
        while changed:
            changed = False
            for pipeline in list(self.state.turns):
                changed |= self._advance_head(pipeline)

    def _advance_head(self, pipeline: Pipeline) -> bool:
        process, changed = pipeline.process, False
        while pipeline.queue:
            head = pipeline.queue[0]
            if isinstance(head, ForkPoint):
                if head.parent.fork_point is not None:
                    break  # the parent itself is still to be made, on another pipeline
                pipeline.queue.popleft()
                settle.apply_fork(process, head)
            elif isinstance(head, CellChange):
                pipeline.queue.popleft()
                settle.apply_change(self.state, process, head)
            else:
                break
            changed = True
        if changed:
            leave_if_idle(self.state, pipeline)
        if not any(isinstance(item, ForkPoint | CellChange) for item in pipeline.queue):
            self.state.turns.pop(pipeline, None)
        return changed

    # ---- fires

    def _ready_of(self, process: Process) -> list[Fire]:
        ready = []
        for pipeline in list(process.active):
            fire = self._fire_of(pipeline)
            if fire is not None and (fire.begun or self._is_ready(fire)):
                ready.append(fire)
        return ready

    def _fire_of(self, pipeline: Pipeline) -> Fire | None:
        head = pipeline.queue[0] if pipeline.queue else None
        kind = type(head)
        if kind is Fire:
            return head
        if kind is not Run:
            self.waiting[pipeline] = "waits for its fork"
            return None
        if head.next_fire is not None:
            return head.next_fire
        started = head.started
        if started >= head.credits or started >= head.budget:
            self.waiting[pipeline] = "waits for credit"
            return None
        fire, head.last_fire = head.last_fire, None
        if fire is None:
            seq = head.first_seq + started
            fire = Fire(
                head.process, pipeline, head.pass_, seq, head.sets, head.order, head,
                head.pass_.lanes,
            )  # fmt: skip
        else:
            fire.seq = head.first_seq + started
        head.next_fire = fire
        return fire

    def _is_ready(self, fire: Fire) -> bool:
        pass_ = fire.pass_
        reason = self._lacks(fire)
        if reason:
            self.waiting[fire.pipeline] = reason
            return False
        if pass_.is_single:
            working_set = fire.sets[0]
            if working_set.length < self.state.model.context_length and working_set.has_room(1):
                return True  # as nearly all decodes
        failure = self._cannot_ever(fire)
        if failure is not None:
            settle.fail(self.state, fire, failure)
            return False
        if fire.lanes is None:
            self._read_host_tokens(fire)
        if prefix.can_match(self.state, fire):
            found = prefix.match(self.state, fire)
            if found.others is not None:
                self.waiting[fire.pipeline] = FOR_OTHERS
                return False
            self.skipped[fire] = sum(found.skipped)
        return True

    def _lacks(self, fire: Fire) -> str:
        for use in fire.pass_.uses:
            channel = use.channel
            held = channel.written - channel.taken
            if use.needs_front and held == 0:
                return f"waits for a cell of channel {channel.number}"
            if use.appends:
                popped = use.pops or (use.pops_if_present and held > 0)
                if held - popped >= channel.capacity:
                    return f"waits for room in channel {channel.number}"
        for working_set in fire.sets:
            if working_set.fork_point is not None:
                return "waits for a fork"
            if working_set.forks and any(
                fork.pipeline is not fire.pipeline for fork in working_set.forks
            ):
                return "waits for a fork of its working set"
        return ""

    def _read_host_tokens(self, fire: Fire) -> None:
        """Ids that the host has put, when they may fill a page: so that they can be looked up."""
        channel = fire.pass_.tokens
        if channel.fed_by_device or fire.num_rows < self.state.pool.page_size:
            return
        (cell,) = self.state.rings.read(channel.cell, [channel.front])
        ids = memoryview(cell).cast("i")
        if -1 <= min(ids) and max(ids) < self.state.model.output_vocab_size:
            fire.lanes = Lanes(ids, fire.pass_.spec.indptr)

    def _cannot_ever(self, fire: Fire) -> Failure | None:
        """Why the fire fails whatever happens: context, or more pages than there are."""
        context, needed = self.state.model.context_length, 0
        is_exact = fire.lanes is not None or fire.pass_.is_exact
        is_placed = fire.pass_.ports is not None  # then its positions are not those of an append
        for working_set, rows in zip(fire.sets, fire.lane_rows):
            end = working_set.length + rows
            is_appended = not is_placed and working_set.positions is None
            if is_exact and is_appended and rows and end > context:
                return context_failure(end, context)
            if not working_set.has_room(rows):
                needed += working_set.pages_needed(rows)
        if is_placed:
            needed = ports.most_pages(fire)
        return self._too_many_pages(fire, needed) if needed else None

    def _too_many_pages(self, fire: Fire, needed: int) -> Failure | None:
        held = set().union(*(working_set.holdings for working_set in fire.sets))
        total, capacity = needed + len(held), self.state.pool.capacity
        if total > capacity:
            message = f"the pass needs {total} pages at once; the engine has {capacity}"
            return Failure(ErrorCode.OUT_OF_MEMORY, message)
        limit = fire.process.limits.pages
        if fire.process.pages + needed > limit:
            self.state.recharge(fire.process)
        if fire.process.pages + needed > limit:
            message = f"the process would hold more than {counted(limit, 'page')}"
            return Failure(ErrorCode.LIMIT, message, limit="pages")
        return None


def context_failure(end: int, context: int) -> Failure:
    return Failure(
        ErrorCode.CONTEXT_LENGTH,
        f"the working set would have {end} rows; the model's context is {context}",
    )
