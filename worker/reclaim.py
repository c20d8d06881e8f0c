"""Whose pages go when a ready fire finds none free: sequences that need them least, in this order.

    parked    their pipeline expects no submit soon
    idle      nothing is accepted for them, and they were in none of the last waves
    waiting   for their inferlet: a cell, a credit, room; likewise
    ready     of a lower priority; else of a process that holds more than its share, for one that
              does not; else younger ones. None that has come back only lately

Sequences of fires in progress keep theirs. When nothing else can run (`relaxed`), waiting sequences
and all younger ones go at once: so the oldest fire of the highest priority always gets its pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

from worker.state import Fire, Pipeline, Process, Run, State
from worker.working_set import WorkingSet


class Need(IntEnum):
    """How much a sequence needs its pages."""

    PARKED = 0
    IDLE = 1
    WAITING = 2
    READY = 3


Age = tuple[int, int]  # greater: served later


def make_room(
    state: State,
    fire: Fire,
    waves: int,
    waiting: Mapping[Pipeline, str],
    missing: Callable[[], int],
    relaxed: bool,
) -> None:
    """Suspends sequences until `missing()` is not positive, or none is left that may go."""
    if missing() <= 0:
        return
    chosen = _Choice(state, fire, waves, waiting, relaxed)
    for working_set in chosen.victims():
        if working_set.pages_to_save > state.swap.num_free:
            continue
        working_set.suspend(state.swap)
        if missing() <= 0:
            return


class _Choice:
    def __init__(
        self,
        state: State,
        fire: Fire,
        waves: int,
        waiting: Mapping[Pipeline, str],
        relaxed: bool,
    ) -> None:
        self.state, self.fire, self.waves = state, fire, waves
        self.waiting, self.relaxed = waiting, relaxed
        self.age = age_of(fire.process, fire.order)
        holders = sum(process.pages > 0 for process in state.processes.values())
        self.share = state.pool.capacity // max(holders + (fire.process.pages == 0), 1)
        self.in_progress = {
            working_set
            for process in state.active
            for pipeline in process.active
            if (head := _head(pipeline)) is not None and head.begun
            for working_set in head.sets
        }

    def victims(self) -> Iterator[WorkingSet]:
        """Those that may go, the one that is missed least first."""
        found = []
        for process in self.state.processes.values():
            for working_set in process.live_sets:
                if working_set.pages and working_set not in self.fire.sets:
                    need = self._need(working_set)
                    if self._may_go(process, working_set, need):
                        age = self._age(process, working_set)
                        first = (need, working_set.last_wave if need < Need.READY else 0)
                        found.append((first, (-age[0], -age[1]), working_set))
        found.sort(key=lambda entry: entry[:2])
        for _, _, working_set in found:
            yield working_set

    def _need(self, working_set: WorkingSet) -> Need:
        user: Pipeline | None = working_set.user
        if not working_set.pending:
            if user is None or user.parked or user.closed or user.failed:
                return Need.PARKED
            return Need.WAITING if user in self.state.expected else Need.IDLE
        reason = self.waiting.get(user)
        return Need.READY if reason is None or reason == FOR_PAGES else Need.WAITING

    def _may_go(self, process: Process, working_set: WorkingSet, need: Need) -> bool:
        if working_set in self.in_progress or not working_set.may_be_suspended:
            return False
        if need is Need.PARKED:
            return True
        if need < Need.READY:
            idle_waves = self.state.config.idle_waves
            return self.relaxed or self.waves - working_set.last_wave >= idle_waves
        is_younger = self._age(process, working_set) > self.age
        if self.relaxed or process.priority < self.fire.process.priority:
            return is_younger
        if self.waves - working_set.restored_wave < self.state.config.tenure_waves:
            return False
        if process is self.fire.process or process.priority > self.fire.process.priority:
            return is_younger
        return process.pages > self.share and (
            is_younger or self.fire.process.pages + self._wanted() <= self.share
        )

    def _wanted(self) -> int:
        """About the pages that the fire asks for."""
        sets, pool = self.fire.sets, self.state.pool
        return sum(pool.pages_for(s.length + rows) for s, rows in zip(sets, self.fire.lane_rows))

    def _age(self, process: Process, working_set: WorkingSet) -> Age:
        user: Pipeline | None = working_set.user
        head = _head(user) if user is not None else None
        return age_of(process, self.state.accepted + 1 if head is None else head.order)


FOR_PAGES = "waits for pages"


def age_of(process: Process, order: int) -> Age:
    return -process.priority, order


def _head(pipeline: Pipeline) -> Fire | None:
    """The fire that heads the pipeline, or the run's next one."""
    head = pipeline.queue[0] if pipeline.queue else None
    if isinstance(head, Run):
        return head.next_fire
    return head if isinstance(head, Fire) else None
