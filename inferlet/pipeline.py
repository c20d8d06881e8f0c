"""Pipeline: an ordering domain. Passes and forks take effect in the order of the calls."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inferlet import naming
from inferlet.errors import PipelineClosed
from inferlet.forward import ForwardPass
from inferlet.runtime import handles
from inferlet.runtime.cells import integer
from inferlet.runtime.fires import PipelineState
from inferlet.runtime.run import Run, check_arguments
from inferlet.runtime.source import user_line
from ipc import messages as m


class Pipeline:
    """Submits return at once; results come from the passes' epilogues and channels."""

    def __init__(self) -> None:
        self._state = PipelineState(user_line())
        weakref.finalize(self, self._state.close).atexit = False

    def submit(self, fwd: ForwardPass) -> None:
        """Checks and enqueues one fire of the pass."""
        self._state.check_open("submit", PipelineClosed)
        self._state.submit([_pass(fwd, "submit")])

    def submit_frame(self, passes: Sequence[ForwardPass | None]) -> None:
        """The same as so many submits, all or nothing, run in back-to-back waves."""
        self._state.check_open("submit_frame", PipelineClosed)
        if not isinstance(passes, Iterable):
            got = naming.shown(passes)
            raise TypeError(f"`submit_frame` got {got}; it takes a list of ForwardPasses")
        self._state.submit([_pass(fwd, "submit_frame") for fwd in passes if fwd is not None])

    async def run_ahead(self, fwd: ForwardPass, budget: int, on_token: Callable[..., Any]) -> int:
        """Fires `fwd` up to `budget` times, several in flight, and calls `on_token` once for each
        in order, with the epilogue's whole result as its one argument (a tuple is one, too), or
        with none when it takes none or the epilogue returns nothing. Stops exactly after the fire
        for which it returns False. Gives the number of calls. No fire comes while `on_token` waits:
        to wait there for a later one is an InferletError."""
        self._state.check_open("run_ahead", PipelineClosed)
        _pass(fwd, "run_ahead")
        if not callable(on_token):
            raise TypeError(f"`run_ahead` got {naming.shown(on_token)} for `on_token`: a function")
        budget = integer(budget, "`budget`")
        if budget <= 0:
            return 0
        ((_, plan),) = self._state.admit([fwd], is_run=True)
        check_arguments(on_token, (plan or fwd._bound).recorded.epilogue)
        bound = self._state.bind(fwd, plan)
        return await Run(self._state, fwd, bound, budget).loop(on_token)

    def park(self) -> None:
        """A hint that no submit comes soon. No effect on results."""
        state = self._state
        if not state.is_closed and not state.failure:
            handles.current().command(m.Park(state.number))

    def close(self) -> None:
        """No more submits or forks. Accepted fires settle."""
        self._state.close()


def _pass(fwd: object, what: str) -> ForwardPass:
    if not isinstance(fwd, ForwardPass):
        raise TypeError(f"`{what}` got {naming.shown(fwd)}; it takes a ForwardPass")
    return fwd
