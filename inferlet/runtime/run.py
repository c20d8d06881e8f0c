"""One `run_ahead`: fires ahead of the host within a window, and an exact stop (contract, 14.1).

fires  [0, delivered)        handed to `on_token`: all local state is as after the last of them
       [delivered, granted)  may be in flight; undone when the run stops
       [granted, budget)     need a credit first
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from inferlet.channel import Channel
from inferlet.errors import InferletError, with_hint
from inferlet.runtime.binding import BoundPass
from inferlet.runtime.failures import fire_failure
from inferlet.runtime.fires import (
    Arrived,
    PipelineState,
    advance,
    arrived_cells,
    commit_cells,
    growth,
)
from inferlet.runtime.ledger import Ledger, accept_channels, num_possible
from inferlet.runtime.placing import Host, check_memory, staged_end, steps
from inferlet.runtime.standstill import waits_only_for
from ipc import messages as m
from ipc.errors import Failure

if TYPE_CHECKING:
    from inferlet.eta.trace import Traced
    from inferlet.forward import ForwardPass

OnToken = Callable[..., Any]
STANDSTILL_SECONDS = 1.0  # after which an `on_token` that waits is looked at
MAX_BUDGET = 1 << 40  # so that sequence numbers never come near 2^63


class Run:
    """A run in progress. Attached to its pipeline from the first fire to the end."""

    def __init__(
        self, pipeline: PipelineState, fwd: "ForwardPass", bound: BoundPass, budget: int
    ) -> None:
        self.pipeline, self.fwd, self.bound = pipeline, fwd, bound
        self._runtime = pipeline.runtime
        self._sets = list(fwd._working_sets)
        self.num_delivered = 0
        self._budget = min(budget, MAX_BUDGET)
        self._first_number = bound.num_accepted
        self._arrived: deque[tuple[m.Fired, Arrived]] = deque()
        self._failure: Failure | None = None  # of the fire after all that arrived
        self._wake: asyncio.Future | None = None
        self._in_on_token: asyncio.Task | None = None  # the run's own task, while it is there
        self._timer: asyncio.TimerHandle | None = None  # while `on_token` waits
        # A `set` in mid-run undoes what is in flight and starts again: these count from there.
        self._first_seq = self._start = self._granted = 0
        self._has_started = False

    # ---- the loop

    async def loop(self, on_token: OnToken) -> int:
        """Delivers fires until the budget ends or `on_token` says stop."""
        passes_value = self.bound.returns_value and accepts_argument(on_token)
        self.pipeline.run = self
        self._hold_sets(1)
        try:
            self._begin()
            while self.num_delivered < self._budget:
                self._extend()
                tensors = await self._next()
                if self.bound.returns_value and not passes_value:
                    self.bound.results.add(tensors)
                arguments = (self.bound.results._value(tensors),) if passes_value else ()
                answer = await self._ask(on_token, arguments)
                if self.bound.returns_value and not passes_value:
                    self.bound.results.drop(tensors)
                if isinstance(answer, (bool, np.bool_)) and not answer:
                    break
            return self.num_delivered
        finally:
            self._finish()

    async def _ask(self, on_token: OnToken, arguments: tuple) -> Any:
        self._in_on_token = asyncio.current_task()
        try:
            answer = on_token(*arguments)
            return await self._watched(answer) if inspect.isawaitable(answer) else answer
        finally:
            self._in_on_token = None

    async def _watched(self, answer: Awaitable[Any]) -> Any:
        """An `on_token` that waits: for a task that waits for the run, it would do so for ever."""
        self._watch()
        try:
            return await answer
        finally:
            self._timer.cancel()

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STANDSTILL_SECONDS, self._look)

    def _look(self) -> None:
        """What waits for a later fire of this run fails if `on_token` waits for nothing else."""
        channels = [c for c, effect in self.bound.effects.items() if effect.appends]
        waiting = [future for channel in channels for future in channel._inbox.waiting]
        waiting += self.bound.results.waiting if self.bound.results else []
        if waits_only_for(self._in_on_token, set(waiting)):
            for future in waiting:
                if not future.done():
                    future.set_exception(self.pipeline.too_late())
        self._watch()

    def _begin(self) -> None:
        """The engine's run starts at the fire after the last delivered one, once it can fire."""
        self._count_coming(-self._num_in_flight)
        self._start = self._granted = self.num_delivered
        self._first_seq = self.pipeline.take_seqs(self._budget - self.num_delivered)
        self._has_started = False

    def _extend(self) -> None:
        """Gives credits when half of the window is free: rarely, and never too late."""
        limit = self._limit()
        if limit > self._granted:
            # The rings may throttle the window to a single fire.
            half = max(1, (limit - self.num_delivered) // 2)
            if limit - self._granted >= half or not self._num_in_flight:
                self._grant(limit - self._granted)
        elif not self._num_in_flight:
            # Everything was delivered and a ring is still full, or still empty.
            Ledger(is_run=True).admit(self.fwd, self.bound)
            raise InferletError(f"{self.bound.label} cannot fire any more")

    def _limit(self) -> int:
        """The first fire that may not be in flight."""
        window = self._runtime.engine.run_ahead_window
        ahead = min(window, num_possible(self.bound, self._sets))
        return min(self._budget, self.num_delivered + ahead)

    def _grant(self, credits: int) -> None:
        self._granted += credits
        self._count_coming(credits)
        end = staged_end(self.bound.inputs)
        check_memory(self.bound.label, end)
        for ws in self._sets if end else ():
            ws._reserve(end)
        number = self.pipeline.number
        if self._has_started:
            self._runtime.command(m.Credit(number, credits))
            return
        self._has_started = True
        budget = self._budget - self._start
        self._runtime.command(
            m.RunAhead(number, self.bound.number, self._first_seq, budget, credits)
        )

    @property
    def _num_in_flight(self) -> int:
        return self._granted - self.num_delivered

    @property
    def bytes_coming(self) -> int:
        """Of results of fires in flight."""
        return self.bound.returned_bytes * self._num_in_flight

    def _count_coming(self, fires: int) -> None:
        self._runtime.result_bytes_coming += fires * self.bound.returned_bytes

    async def _next(self) -> tuple[bytes, ...]:
        """The results of the next fire, whose effects now count."""
        while not self._arrived:
            failure = self.pipeline.failure or self._runtime.failure
            if failure:
                raise failure()
            if self._failure:
                self._fail_pipeline(self._failure)
                continue
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        event, arrived = self._arrived.popleft()
        self._deliver(event, arrived)
        return event.results

    def _deliver(self, event: m.Fired, arrived: Arrived) -> None:
        hosts = [Host.of(ws) for ws in self._sets]
        lanes = steps(self.bound.inputs, self._sets, hosts, {})
        for lane, (ws, step) in enumerate(zip(self._sets, lanes, strict=True)):
            frozen, grown = growth(step, event, lane)
            advance(ws, step, frozen, grown)
            ws._cached += event.cached[lane] if event.cached else 0
        accept_channels(self.bound)
        commit_cells(self.bound, arrived)
        self.bound.num_accepted += 1
        self.bound.num_settled += 1
        self.num_delivered += 1
        self._count_coming(-1)
        if self.bound.results:
            self.bound.results.wake()

    def _fail_pipeline(self, failure: Failure) -> None:
        number = self._first_number + self.num_delivered
        place = self.bound.place_of(failure)
        self.pipeline.fail(fire_failure(failure, self.bound.label, number, place))

    def _finish(self) -> None:
        """The exact stop. Goes ahead of whatever the program sends next; nobody waits for it."""
        self.pipeline.run = None
        self._count_coming(-self._num_in_flight)
        self._hold_sets(-1)
        if self.pipeline.failure is None and self.num_delivered < self._budget:
            self._stop()
        self.pipeline.wake()
        self.pipeline.end_run()

    def _stop(self) -> None:
        if self._has_started:
            last_seq = self._first_seq + (self.num_delivered - self._start) - 1
            self._runtime.command(m.Stop(self.pipeline.number, last_seq))

    def _hold_sets(self, change: int) -> None:
        """The run's working sets are busy while it lasts."""
        for working_set in self._sets:
            working_set._user = self.pipeline
            working_set._num_unsettled += change

    # ---- called from outside

    def expects(self, seq: int) -> bool:
        return seq >= self._first_seq

    @property
    def waits_for_caller(self) -> bool:
        """Whether the caller is `on_token`, so that no fire is delivered before it returns."""
        return self._in_on_token is not None and self._in_on_token is asyncio.current_task()

    def arrive(self, event: m.Fired) -> None:
        self._arrived.append((event, arrived_cells(self.bound, event)))
        self.wake()

    def on_failed(self, failure: Failure) -> None:
        self._failure = failure
        self.wake()

    def wake(self) -> None:
        if self._wake and not self._wake.done():
            self._wake.set_result(None)

    def set_cell(self, channel: Channel, command: m.SetCell) -> None:
        """`set` acts on the fire after the last delivered one: those in flight are redone."""
        if channel not in self.bound.effects or not self._num_in_flight:
            self._runtime.command(command)
            return
        self._stop()
        self._arrived.clear()
        self._failure = None
        self._runtime.command(command)
        self._begin()
        if num_possible(self.bound, self._sets):  # else `on_token` makes room before it returns
            self._extend()

    def owe(self, channel: Channel) -> None:
        """The host begins to watch: cells of fires that arrived without theirs will follow."""
        for number, (event, arrived) in enumerate(self._arrived):
            self._arrived[number] = (
                event,
                [(c, c._owe() if c is channel else cell) for c, cell in arrived],
            )


def check_arguments(on_token: OnToken, epilogue: "Traced | None") -> None:
    """TypeError for a function that cannot be called with a result, before anything fires."""
    try:
        signature = inspect.signature(on_token)
    except (TypeError, ValueError):  # some builtins
        return
    returns_value = epilogue is not None and epilogue.returns_value
    values = (None,) if returns_value and accepts_argument(on_token) else ()
    try:
        signature.bind(*values)
    except TypeError as error:
        what = f"`run_ahead` cannot call `on_token`: {error}"
        raise TypeError(with_hint(what, _argument_hint(signature, epilogue))) from None


def _argument_hint(signature: inspect.Signature, epilogue: "Traced | None") -> str:
    required = [p.name for p in signature.parameters.values() if p.default is p.empty]
    if epilogue is None or not epilogue.returns_value:
        return "the epilogue returns nothing, so `on_token` gets no argument: write `return`"
    parts = epilogue.structure
    if isinstance(parts, tuple) and parts[0] in ("tuple", "list"):
        return (
            "the whole result is one argument: write `def on_token(result):` and in it "
            f"`{', '.join(required)} = result`"
        )
    return "the whole result is one argument: write `def on_token(result):`"


def accepts_argument(function: OnToken) -> bool:
    """Whether `function` can be called with one positional argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins
        return True
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(parameter.kind in positional for parameter in parameters)
