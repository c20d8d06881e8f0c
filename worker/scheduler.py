"""Which fires form the next wave: a pure function of counts. No tensors, no clocks.

A fire is ready when it heads its pipeline, every channel whose front it needs holds a cell, every
channel it appends to has room, its working sets exist, and its pages can be had.

    short fires   (decodes, small prompts) first, in turn over processes and their pipelines
    long fires    what is left of the row budget, at least a quarter, oldest first, cut into chunks
"""

from __future__ import annotations

from collections.abc import Iterator

from ipc.errors import ErrorCode, Failure
from worker import settle
from worker.state import (
    CellChange,
    Fire,
    ForkPoint,
    Pipeline,
    Process,
    Run,
    Segment,
    State,
    Wave,
)


class Scheduler:
    def __init__(self, state: State) -> None:
        config = state.config
        self.state = state
        self.row_budget = config.row_budget
        self.short_rows = min(config.short_rows, config.row_budget // 2)
        self.long_share = config.row_budget // 4  # of a wave, while a long fire is ready
        self.min_chunk = max(min(config.min_chunk, self.long_share), 1)
        self.waves = 0
        self.waiting: dict[Pipeline, str] = {}  # why the head of a pipeline was not ready
        self.without_pages: list[Fire] = []  # ready but for pages
        self._may_overtake = False

    def next_wave(self) -> Wave | None:
        """The next wave, with its pages taken; None when nothing is ready."""
        self.waiting.clear()
        self.without_pages.clear()
        self._advance_heads()
        ready = list(self._in_turn())
        if not ready:
            return None
        wave = self._fill(ready, may_overtake=False)
        if not wave.segments:
            # Nothing runs that could give pages back soon: better a younger fire than none.
            wave = self._fill(ready, may_overtake=True)
        if not wave.segments:
            return None
        self.waves += 1
        if len(wave.segments) < len(ready):
            self._served_go_last(wave)
        return wave

    def exhausted(self) -> Fire | None:
        """The fire to give up when no wave is possible for want of pages: the youngest of them.

        None while somebody may still give pages back: a process that holds some and waits for none.
        """
        if not self.without_pages:
            return None
        waiting = {fire.process for fire in self.without_pages}
        for process in self.state.processes.values():
            if process.pages and process not in waiting:
                return None
        return max(self.without_pages, key=lambda fire: fire.order)

    # ---- what heads the pipelines

    def _advance_heads(self) -> None:
        """Forks and changes of cells whose turn has come, until none is left."""
        changed = True
        while changed:
            changed = False
            for pipeline in self._active_pipelines():
                changed |= self._advance_head(pipeline)

    def _active_pipelines(self) -> list[Pipeline]:
        return [pipeline for process in self.state.active for pipeline in process.active]

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
            settle.leave_if_idle(self.state, pipeline)
        return changed

    def _in_turn(self) -> Iterator[Fire]:
        """Ready fires: the first of each process, then the second of each, …"""
        rounds = [self._ready_of(process) for process in list(self.state.active)]
        while rounds:
            going_on = []
            for fires in rounds:
                fire = next(fires, None)
                if fire is not None:
                    yield fire
                    going_on.append(fires)
            rounds = going_on

    def _ready_of(self, process: Process) -> Iterator[Fire]:
        for pipeline in list(process.active):
            fire = self._head_fire(pipeline)
            if fire is not None and self._is_ready(fire):
                yield fire

    def _head_fire(self, pipeline: Pipeline) -> Fire | None:
        head = pipeline.queue[0] if pipeline.queue else None
        if isinstance(head, Fire):
            return head
        if not isinstance(head, Run):
            self.waiting[pipeline] = "waits for its fork"
            return None
        if head.next_fire is None:
            if not head.may_start:
                self.waiting[pipeline] = "waits for credit"
                return None
            seq = head.first_seq + head.started
            head.next_fire = Fire(
                head.process, pipeline, head.pass_, seq, head.sets, head.order, head,
                head.pass_.lanes,
            )  # fmt: skip
        return head.next_fire

    def _is_ready(self, fire: Fire) -> bool:
        if fire.begun:
            return True
        reason = self._lacks(fire)
        if reason:
            self.waiting[fire.pipeline] = reason
            return False
        failure = self._cannot_ever(fire)
        if failure is not None:
            settle.fail(self.state, fire, failure)
        return failure is None

    def _lacks(self, fire: Fire) -> str:
        for use in fire.pass_.uses:
            channel = use.channel
            if use.needs_front and channel.held == 0:
                return f"waits for a cell of channel {channel.number}"
            if use.appends and channel.held - use.pops >= channel.capacity:
                return f"waits for room in channel {channel.number}"
        for working_set in fire.sets:
            if working_set.fork_point is not None:
                return "waits for a fork"
            if any(fork.pipeline is not fire.pipeline for fork in working_set.forks):
                return "waits for a fork of its working set"
        return ""

    def _cannot_ever(self, fire: Fire) -> Failure | None:
        """Why the fire fails whatever happens: context, or more pages than there are."""
        context, pool = self.state.model.context_length, self.state.pool
        own: set[int] = set()
        needed = 0
        for working_set, rows in zip(fire.sets, fire.lane_rows):
            if fire.lanes is not None or fire.pass_.is_exact:
                end = working_set.length + rows
                if rows and end > context:
                    return context_failure(end, context)
            own.update(working_set.pages)
            needed += working_set.pages_needed(rows)
        if needed + len(own) > pool.capacity:
            return Failure(
                ErrorCode.OUT_OF_MEMORY,
                f"the pass needs {needed + len(own)} pages at once; the engine has {pool.capacity}",
            )
        limit = fire.process.limits.pages
        if needed and fire.process.pages + needed > limit:
            return Failure(ErrorCode.LIMIT, f"the process would hold more than {limit} pages")
        return None

    # ---- rows and pages

    def _fill(self, ready: list[Fire], may_overtake: bool) -> Wave:
        self.without_pages.clear()
        self._may_overtake = may_overtake
        wave = Wave(self.waves + 1, [], [])
        left = self._add_short(wave, ready)
        self._add_long(wave, ready, left)
        return wave

    def _add_short(self, wave: Wave, ready: list[Fire]) -> int:
        """Adds the short fires; gives the rows left for the long ones."""
        left = self.row_budget
        has_long = any(self._remaining(fire) > self.short_rows for fire in ready)
        reserve = self.long_share if has_long else 0
        for fire in ready:
            rows = self._remaining(fire)
            if rows <= self.short_rows and left - rows >= reserve:
                left -= self._add(wave, fire, rows)
        return left

    def _add_long(self, wave: Wave, ready: list[Fire], left: int) -> None:
        long = [fire for fire in ready if self._remaining(fire) > self.short_rows]
        for fire in sorted(long, key=lambda fire: (not fire.begun, fire.order)):
            rows = min(self._remaining(fire), left)
            if rows >= min(self.min_chunk, self._remaining(fire)):
                left -= self._add(wave, fire, rows)

    @staticmethod
    def _remaining(fire: Fire) -> int:
        return fire.num_rows - fire.rows_done

    def _add(self, wave: Wave, fire: Fire, rows: int) -> int:
        """Puts `rows` rows of the fire into the wave; gives the rows that this takes."""
        if not fire.begun and not self._take_pages(wave, fire):
            return 0
        wave.segments.append(Segment(fire, fire.rows_done, fire.rows_done + rows))
        return rows

    def _take_pages(self, wave: Wave, fire: Fire) -> bool:
        """Pages for the whole fire at once, so that no two passes wait for each other's half."""
        lanes = list(zip(fire.sets, fire.lane_rows))
        needed = sum(working_set.pages_needed(rows) for working_set, rows in lanes)
        if needed > self.state.pool.num_free or self._overtakes(fire, needed - len(lanes)):
            self.without_pages.append(fire)
            self.waiting[fire.pipeline] = "waits for pages"
            return False
        for working_set, rows in lanes:
            wave.copies += working_set.extend(rows)
        self.waiting.pop(fire.pipeline, None)
        fire.begun = True
        return True

    def _overtakes(self, fire: Fire, pages_beyond: int) -> bool:
        """Whether it would take more than a page for each lane from an older fire that waits."""
        if self._may_overtake or pages_beyond <= 0:
            return False
        return any(other.order < fire.order for other in self.without_pages)

    def _served_go_last(self, wave: Wave) -> None:
        for segment in wave.segments:
            process, pipeline = segment.fire.process, segment.fire.pipeline
            process.active[pipeline] = process.active.pop(pipeline)
            self.state.active[process] = self.state.active.pop(process)


def context_failure(end: int, context: int) -> Failure:
    return Failure(
        ErrorCode.CONTEXT_LENGTH,
        f"the working set would have {end} rows; the model's context is {context}",
    )


