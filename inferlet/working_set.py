"""WorkingSet: the complete state of one sequence, by its handle. Slots and pages are the engine's.

Counts the frozen slots: at once where the host knows them, else when the fire has settled.
"""

from typing import TYPE_CHECKING

from inferlet import naming
from inferlet.errors import InferletError, OutOfMemory, PipelineClosed, TraceError, with_hint
from inferlet.eta.trace import current_stage
from inferlet.runtime import cells, handles
from inferlet.runtime.source import at, user_line
from ipc import messages as m
from ipc.geometry import Slots

if TYPE_CHECKING:
    from inferlet.pipeline import Pipeline
    from inferlet.runtime.fires import PipelineState


class WorkingSet:
    """Starts empty and holds no memory until a pass appends rows to it."""

    def __init__(self) -> None:
        self._line = user_line()
        self._number = handles.current().number("set")
        self._folded = 0
        self._cached = 0  # leading tokens from the prefix cache, by the fires that have settled
        # A lower bound of the extent after all accepted fires; equal to it where the host knows.
        self._least_extent = 0
        self._slots: Slots | None = Slots()  # all of it after those fires, unless a device decides
        self._may_have_tail = False  # slots that are not frozen
        self._reserved = 0
        self._user: PipelineState | None = None
        self._num_unsettled = 0  # fires of `_user` that use this set
        runtime = handles.current()
        runtime.command(m.OpenWorkingSet(self._number))
        runtime.drop_with(self, m.DropWorkingSet(self._number))

    def fork(self, pipe: "Pipeline") -> "WorkingSet":
        """A child with the state after all passes submitted to `pipe` so far."""
        from inferlet.pipeline import Pipeline

        if current_stage() is not None:
            what = f"`fork` is called inside a stage\n  at {at(user_line())}"
            raise TraceError(with_hint(what, "fork on the host"))
        if not isinstance(pipe, Pipeline):
            raise TypeError(f"`fork` got {naming.shown(pipe)}; it takes a Pipeline")
        pipeline = pipe._state
        pipeline.check_open("fork", PipelineClosed)
        self._check_free(pipeline)
        child = object.__new__(WorkingSet)
        child._line = user_line()
        runtime = handles.current()
        child._number = runtime.number("set")
        child._folded, child._least_extent = self._folded, self._least_extent
        child._slots, child._may_have_tail = self._slots, self._may_have_tail
        child._reserved = self._reserved
        child._cached = self._cached
        child._user, child._num_unsettled = None, 0
        pipeline.inherit(self, child)
        runtime.command(m.Fork(self._number, child._number, pipeline.number))
        runtime.drop_with(child, m.DropWorkingSet(child._number))
        return child

    def folded(self) -> int:
        """How many leading slots are frozen."""
        return self._folded

    def cached_tokens(self) -> int:
        """How many leading tokens were taken from cached pages instead of computed, by the fires
        that are known to have settled. A multiple of the page size; it never decreases."""
        return self._cached

    def reserve(self, end: int) -> None:
        """Lets passes write the slots below `end`: needed when stages choose them."""
        if current_stage() is not None:
            what = f"`reserve` is called inside a stage\n  at {at(user_line())}"
            raise TraceError(with_hint(what, "call it on the host"))
        end = cells.integer(end, "`end`")
        if end < 0:
            raise ValueError(f"`reserve` got {end}; at least 0")
        engine = handles.current().engine
        if end > engine.num_pages * engine.page_size:
            raise OutOfMemory(
                with_hint(
                    f"`reserve({end})` of the {self._label}: the engine has memory for "
                    f"{engine.num_pages * engine.page_size} slots in all",
                    "reserve what the sequence needs, or start the engine with more memory",
                )
            )
        self._reserve(end)

    def _reserve(self, end: int) -> None:
        if self._slots is not None:
            self._slots = self._slots.reserve(end)
        if end > self._reserved:
            self._reserved = end
            handles.current().command(m.Reserve(self._number, end))

    @property
    def _label(self) -> str:
        return f"working set (made at {at(self._line)})"

    def _check_free(self, pipeline: "PipelineState") -> None:
        if self._num_unsettled and self._user is not pipeline:
            raise InferletError(
                with_hint(
                    f"the {self._label} is busy: fires on another pipeline (made at "
                    f"{at(self._user.line)}) have not settled",
                    "await their results first, or use one pipeline",
                )
            )
