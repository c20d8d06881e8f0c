"""One pipeline as the host sees it: accepted fires in order, how they settle, and how it fails.

Lives until the pipeline is closed and its fires have settled, whatever handles the user still has.
"""

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferlet.channel import Cell, Channel
from inferlet.errors import InferletError, TraceError, with_hint
from inferlet.eta.trace import current_stage
from inferlet.runtime import binding, handles
from inferlet.runtime.binding import BoundPass, Plan
from inferlet.runtime.failures import MakeError, fire_failure
from inferlet.runtime.ledger import Ledger, accept_channels
from inferlet.runtime.placing import Host, LaneStep, steps
from inferlet.runtime.source import Line, at, user_line
from inferlet.working_set import WorkingSet
from ipc import messages as m

if TYPE_CHECKING:
    from inferlet.forward import ForwardPass
    from inferlet.runtime.run import Run


@dataclass(slots=True)
class Fire:
    """An accepted fire that has not settled."""

    seq: int
    number: int  # among the fires of its pass
    bound: BoundPass
    users: list[WorkingSet]  # the sets of its lanes
    lanes: list[LaneStep]
    before: list[Host]  # the sets of its lanes
    # Every set that the fire's rows count for: those of the lanes, and forks made since.
    counted: list[tuple[WorkingSet, int]] = field(default_factory=list)


class PipelineState:
    """Fires in order of their sequence numbers, which are never reused."""

    def __init__(self, line: Line) -> None:
        self.runtime = runtime = handles.current()
        self.line = line
        self.number = runtime.number("pipeline")
        self.next_seq = 0
        self.fires: deque[Fire] = deque()
        self.run: Run | None = None
        self.failure: MakeError | None = runtime.failure
        self.is_closed = False
        self.channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self.passes: weakref.WeakSet[BoundPass] = weakref.WeakSet()
        runtime.pipelines[self.number] = self
        runtime.command(m.OpenPipeline(self.number))

    # ---- submits

    def submit(self, passes: list["ForwardPass"]) -> None:
        """All of them, or none. Several form frames, which run in back-to-back waves."""
        accepted = self.admit(passes)
        frame_size = self.runtime.engine.frame_size
        for place, (fwd, plan) in enumerate(accepted):
            self._accept(fwd, self.bind(fwd, plan), follows=place % frame_size > 0)

    def admit(
        self, passes: list["ForwardPass"], *, is_run: bool = False
    ) -> list[tuple["ForwardPass", Plan | None]]:
        """Checks without changing anything. A Plan for each pass that is not bound yet."""
        plans: dict[ForwardPass, Plan] = {}
        ledger = Ledger(is_run=is_run)
        for fwd in passes:
            self._check_pass(fwd)
            if fwd._bound is None and fwd not in plans:
                plans[fwd] = Plan(fwd, self)
            ledger.admit(fwd, fwd._bound or plans[fwd])
        return [(fwd, plans.get(fwd)) for fwd in passes]

    def bind(self, fwd: "ForwardPass", plan: Plan | None) -> BoundPass:
        """The bound pass, told to the engine with the working sets of its next fire."""
        bound = fwd._bound or plan.commit()
        sets = tuple(working_set._number for working_set in fwd._working_sets)
        if sets != bound.sent_sets:
            bound.sent_sets = sets
            self.runtime.command(m.BindState(bound.number, sets))
        return bound

    def _check_pass(self, fwd: "ForwardPass") -> None:
        if fwd._bound and fwd._bound.pipeline is not self:
            raise InferletError(
                with_hint(
                    f"{fwd._label} belongs to another pipeline (made at "
                    f"{at(fwd._bound.pipeline.line)}), which it was first submitted on",
                    "make another ForwardPass",
                )
            )
        for working_set in binding.working_sets(fwd) if fwd._working_sets else ():
            working_set._check_free(self)

    def _accept(self, fwd: "ForwardPass", bound: BoundPass, follows: bool) -> None:
        sets = list(fwd._working_sets)
        before = [Host.of(ws) for ws in sets]
        lanes = steps(bound.inputs, sets, before, {})
        fire = Fire(self.take_seqs(1), bound.num_accepted, bound, sets, lanes, before)
        accept_channels(bound)
        bound.num_accepted += 1
        bound.num_unsettled += 1
        self.runtime.result_bytes_coming += bound.returned_bytes
        for lane, (working_set, step) in enumerate(zip(sets, lanes, strict=True)):
            working_set._user = self
            working_set._num_unsettled += 1
            advance(working_set, step, step.known or 0, step.least)
            fire.counted.append((working_set, lane))
        self.fires.append(fire)
        self.runtime.command(m.Submit(self.number, bound.number, fire.seq, follows))

    def take_seqs(self, count: int) -> int:
        """Reserves sequence numbers; gives the first."""
        first = self.next_seq
        self.next_seq += count
        return first

    def inherit(self, parent: WorkingSet, child: WorkingSet) -> None:
        """`child` forks `parent`: what its unsettled fires append counts for both."""
        for fire in self.fires:
            for working_set, lane in tuple(fire.counted):
                if working_set is parent:
                    fire.counted.append((child, lane))

    def check_open(self, what: str, closed: type[InferletError]) -> None:
        """Refuses `what` in a stage, on a failed or closed pipeline, and during a run."""
        if current_stage() is not None:
            stage = f"`{what}` is called inside a stage\n  at {at(user_line())}"
            raise TraceError(with_hint(stage, "call it on the host"))
        self.runtime.check_alive()
        if self.failure:
            raise self.failure()
        if self.is_closed:
            raise closed(
                with_hint(
                    f"`{what}` on a closed pipeline (made at {at(self.line)})",
                    "make another Pipeline, or close this one later",
                )
            )
        if self.run:
            raise InferletError(
                with_hint(
                    f"`{what}` on a pipeline (made at {at(self.line)}) during its `run_ahead`",
                    "await the run first, or use another pipeline",
                )
            )

    # ---- events

    def on_fired(self, event: m.Fired) -> None:
        if self.run and self.run.expects(event.seq):
            self.run.arrive(event)
        elif self.fires and self.fires[0].seq == event.seq:
            self._settle(self.fires.popleft(), event)
            self._forget_if_done()
        # Anything else is an undone fire of a run that was stopped.

    def _settle(self, fire: Fire, event: m.Fired) -> None:
        self._release(fire)
        for working_set, lane in fire.counted:
            step = fire.lanes[lane]
            frozen, grown = growth(step, event, lane)
            working_set._folded += frozen - (step.known or 0)
            working_set._least_extent += grown - step.least
            working_set._cached += event.cached[lane] if event.cached else 0
        commit_cells(fire.bound, arrived_cells(fire.bound, event))
        fire.bound.num_settled += 1
        fire.bound.num_unsettled -= 1
        self.runtime.result_bytes_coming -= fire.bound.returned_bytes
        results = fire.bound.results
        if results and fire.bound.returns_value:
            results.add(event.results)
        if results:
            results.wake()

    def on_failed(self, event: m.Failed) -> None:
        if self.run and self.run.expects(event.seq):
            self.run.on_failed(event.failure)
            return
        for fire in self.fires:
            if fire.seq == event.seq:
                failure, bound = event.failure, fire.bound
                place = bound.place_of(failure)
                self.fail(fire_failure(failure, bound.label, fire.number, place))
                return

    def fail(self, failure: MakeError) -> None:
        """Later accepted fires are dropped, and every await on them gets `failure`."""
        if self.failure:
            return
        self.failure = failure
        for fire in reversed(self.fires):
            self._release(fire)
            for working_set, lane in fire.counted:
                step, before = fire.lanes[lane], fire.before[lane]
                working_set._folded -= step.known or 0
                working_set._least_extent -= step.least
                working_set._slots, working_set._may_have_tail = before.slots, before.may_have_tail
            fire.bound.num_unsettled -= 1
            self.runtime.result_bytes_coming -= fire.bound.returned_bytes
        self.fires.clear()
        if self.run:
            self.run.wake()
        self.wake()
        self._forget_if_done()

    def _release(self, fire: Fire) -> None:
        for working_set in fire.users:
            working_set._num_unsettled -= 1

    def wake(self) -> None:
        """Awaits on channels and results look again whether anything can come."""
        for channel in list(self.channels):
            channel._inbox.wake()
        for bound in list(self.passes):
            results = bound.results
            if results:
                results.wake()

    def is_filling(self, channel: Channel) -> bool:
        """Whether a run in progress puts cells on `channel`."""
        if self.run is None:
            return False
        effect = self.run.bound.effects.get(channel)
        return effect is not None and effect.appends

    def fills_later(self) -> InferletError | None:
        """Why `on_token` cannot wait for what the run's next fires make; None to anybody else."""
        return self.too_late() if self.run and self.run.waits_for_caller else None

    def too_late(self) -> InferletError:
        """`on_token` waits for a fire that comes after it has returned."""
        return InferletError(
            with_hint(
                f"`on_token` of a run on the pipeline (made at {at(self.line)}) waits for a later "
                "fire of that run, which is delivered only once `on_token` has returned",
                "await what this fire made, once, or await it in a task of its own, and await that "
                "task after the run",
            )
        )

    # ---- end

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.run is None:
                self.end_run()

    def end_run(self) -> None:
        """Tells the engine of a close that waited for the end of a run."""
        if self.is_closed:
            self.runtime.command(m.ClosePipeline(self.number))
            self._forget_if_done()

    def _forget_if_done(self) -> None:
        if self.is_closed and not self.fires and self.run is None:
            self.runtime.pipelines.pop(self.number, None)


def advance(working_set: WorkingSet, step: LaneStep, frozen: int, grown: int) -> None:
    """The working set after one more fire, as far as the host counts it now."""
    working_set._reserve(step.after.reserved)
    working_set._folded += frozen
    working_set._least_extent += grown
    working_set._slots = step.after.slots
    working_set._may_have_tail = step.after.may_have_tail


def growth(step: LaneStep, event: m.Fired, lane: int) -> tuple[int, int]:
    """By how much a settled fire made the frozen prefix and the extent grow."""
    if not event.appended:
        return (event.frozen[lane] if event.frozen else step.frozen), step.default
    grown = event.appended[lane]
    return (event.frozen[lane] if event.frozen else grown), grown


Arrived = list[tuple[Channel, Cell | None]]


def arrived_cells(bound: BoundPass, event: m.Fired) -> Arrived:
    """What a fire appended to each channel: a Cell where the host watches it, else None."""
    data = dict(event.cells)
    arrived: Arrived = []
    for channel, effect in bound.effects.items():
        if not effect.appends:
            continue
        if channel._number in data:
            arrived.append((channel, Cell(data[channel._number])))
        else:  # the engine keeps it, or will send it once it knows that the host watches
            arrived.append((channel, channel._owe() if channel._is_watched else None))
    return arrived


def commit_cells(bound: BoundPass, arrived: Arrived) -> None:
    """The fire has settled: its cells are the host's, or the engine's to keep."""
    for channel, cell in arrived:
        channel._commit(cell)
