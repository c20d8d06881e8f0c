"""ForwardPass: the description of one pass, bound piece by piece and fixed by its first submit."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inferlet import naming
from inferlet.channel import Channel
from inferlet.errors import InferletError, with_hint
from inferlet.runtime import cells
from inferlet.runtime.results import Results
from inferlet.runtime.source import at, user_line
from inferlet.working_set import WorkingSet

if TYPE_CHECKING:
    from inferlet.runtime.binding import BoundPass


Numbers = list[int] | Channel  # what feeds a port: a list that every fire sees, or a channel


class StateGeometry:
    """Which slots a pass writes, and which it freezes. `folding()` appends and freezes; the
    constructor places every row. Each argument is a u32 channel or a host list."""

    __slots__ = ("_fold", "_form", "_kv_len", "_positions", "_slots")

    def __init__(
        self,
        *,
        positions: Sequence[int] | Channel,
        slots: Sequence[int] | Channel,
        kv_len: Sequence[int] | Channel,
        fold: Sequence[int] | Channel | None = None,
    ) -> None:
        """`positions` and `slots` have an entry for each row, `kv_len` and `fold` for each lane."""
        self._form = "explicit"
        self._positions = _numbers(positions, "`positions`")
        self._slots = _numbers(slots, "`slots`")
        self._kv_len = _numbers(kv_len, "`kv_len`")
        self._fold = None if fold is None else _numbers(fold, "`fold`")

    @classmethod
    def folding(cls) -> "StateGeometry":
        """Appends the rows of each lane and freezes them at commit."""
        geometry = object.__new__(cls)
        geometry._form = "folding"
        geometry._positions = geometry._slots = geometry._kv_len = geometry._fold = None
        return geometry

    @property
    def _is_explicit(self) -> bool:
        return self._form == "explicit"

    def _ports(self) -> tuple[Numbers | None, ...]:
        return self._positions, self._slots, self._kv_len, self._fold

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateGeometry):
            return NotImplemented
        pairs = zip(self._ports(), other._ports(), strict=True)
        return self._form == other._form and all(a is b or a == b for a, b in pairs)

    def __hash__(self) -> int:
        return hash(self._form)

    def __repr__(self) -> str:
        return "StateGeometry(...)" if self._is_explicit else "StateGeometry.folding()"


class ForwardPass:
    """An empty builder. Each thing is bound once, before the first submit."""

    def __init__(self) -> None:
        self._line = user_line()
        self._tokens: list[int] | Channel | None = None
        self._indptr: Numbers | None = None
        self._working_sets: list[WorkingSet] | None = None
        self._geometry: StateGeometry | None = None
        self._readout: Numbers | None = None
        self._mask: np.ndarray | Channel | None = None
        self._groups: dict[int, int] = {}
        self._checkpoints: Numbers | None = None
        self._prologue: Callable[[], Any] | None = None
        self._epilogue: Callable[[], Any] | None = None
        self._results: Results | None = None
        self._bound: BoundPass | None = None  # once it was submitted
        self._recorded: Any = None  # what a refused first submit recorded (binding.Recorded)

    def embed(
        self,
        tokens: Sequence[int] | Channel,
        indptr: Sequence[int] | Channel | None = None,
    ) -> None:
        """The rows: an i32 channel `[rows]`, or a list that every fire sees. `indptr`: CSR offsets
        that split them into lanes, a list or a u32 channel; one lane without it."""
        self._bind_once("embed", self._tokens)
        if not isinstance(tokens, Channel):
            tokens = cells.integers(tokens, "`tokens`")
            if not tokens:
                raise ValueError("`embed` got no tokens: a pass has at least one row")
        if indptr is not None and not isinstance(indptr, Channel):
            indptr = cells.integers(indptr, "`indptr`")
            if not indptr:
                raise ValueError("`embed` got an empty `indptr`: it starts with 0")
        self._tokens, self._indptr = tokens, indptr

    def state(self, working_sets: Sequence[WorkingSet], geometry: StateGeometry) -> None:
        """One working set a lane. Legal after the first submit too, for later submits."""
        if not isinstance(geometry, StateGeometry):
            got = naming.shown(geometry)
            raise TypeError(f"`state` got {got} as geometry: `StateGeometry.folding()`")
        if isinstance(working_sets, WorkingSet):
            raise TypeError("`state` takes a list of working sets: write `[ws]`")
        if not isinstance(working_sets, Iterable):
            got = naming.shown(working_sets)
            raise TypeError(f"`state` got {got}; it takes a list of working sets")
        working_sets = list(working_sets)
        for working_set in working_sets:
            if not isinstance(working_set, WorkingSet):
                raise TypeError(f"`state` got {naming.shown(working_set)}; it takes WorkingSets")
        if self._bound is None:
            self._bind_once("state", self._geometry)
        else:
            self._check_rebinding(working_sets, geometry)
        self._working_sets, self._geometry = working_sets, geometry

    def readout(self, indices: Sequence[int] | Channel) -> None:
        """The rows whose outputs the epilogue sees: a list, or a u32 channel. By default the last
        row of each lane."""
        self._bind_once("readout", self._readout)
        if not isinstance(indices, Channel):
            indices = cells.integers(indices, "`readout`")
            if not indices:
                raise ValueError("`readout` got no indices")
        self._readout = indices

    def mask(self, rows: Sequence[Sequence[bool]] | Channel) -> None:
        """Which slots of its lane each row attends, instead of causality: bools `[rows, slots]`, a
        nested list or a channel."""
        self._bind_once("mask", self._mask)
        self._mask = rows if isinstance(rows, Channel) else cells.bools(rows, "`mask`")

    def group(self, lane: int, id: int) -> None:
        """Lanes of one group attend each other's earlier positions."""
        lane, id = cells.integer(lane, "`lane`"), cells.integer(id, "the group's id")
        self._bind_once(f"group of lane {lane}", self._groups.get(lane))
        if lane < 0:
            raise InferletError(f"`group` got lane {lane}; the first lane is 0")
        if not 0 <= id < 1 << 32:
            raise ValueError(f"`group` got the id {id}: 0 to 4294967295")
        self._groups[lane] = id

    def checkpoints(self, slots: Sequence[int] | Channel) -> None:
        """After which slots the recurrent state of models that have one is kept."""
        self._bind_once("checkpoints", self._checkpoints)
        self._checkpoints = _numbers(slots, "`checkpoints`")

    def prologue(self, f: Callable[[], Any]) -> None:
        """A stage before the ports are read. Also a decorator."""
        self._bind_once("prologue", self._prologue)
        self._prologue, self._recorded = _stage(f, "prologue"), None

    def epilogue(self, f: Callable[[], Any]) -> Results:
        """A stage after the forward. Gives an awaitable: each await is the next fire's result.
        Also a decorator."""
        self._bind_once("epilogue", self._epilogue)
        self._epilogue, self._recorded = _stage(f, "epilogue"), None
        self._results = Results(self)
        return self._results

    @property
    def _label(self) -> str:
        number = f" {self._bound.number}" if self._bound else ""
        return f"pass{number} (made at {at(self._line)})"

    def _bind_once(self, what: str, present: object) -> None:
        if self._bound is not None:
            raise InferletError(
                with_hint(
                    f"`{what}` of {self._label} is called after its first submit",
                    "only `state` may change then: make another ForwardPass",
                )
            )
        if present is not None:
            raise InferletError(
                with_hint(f"`{what}` of {self._label} is bound twice", "make another ForwardPass")
            )

    def _check_rebinding(self, working_sets: list[WorkingSet], geometry: StateGeometry) -> None:
        lanes = self._bound.spec.num_lanes
        if len(working_sets) != lanes:
            raise InferletError(
                with_hint(
                    f"{self._label} has {lanes} lanes; `state` got {len(working_sets)} working "
                    "sets",
                    "give one working set a lane, or make another ForwardPass",
                )
            )
        if geometry != self._geometry:
            raise InferletError(
                with_hint(
                    f"`state` of {self._label} changes its geometry", "make another ForwardPass"
                )
            )


def _numbers(values: Sequence[int] | Channel, what: str) -> Numbers:
    if isinstance(values, Channel):
        return values
    numbers = cells.integers(values, what)
    for number in numbers:
        if not 0 <= number < 1 << 32:
            raise ValueError(f"{what} holds {number}: 0 to 4294967295")
    return numbers


def _stage(f: object, what: str) -> Callable[[], Any]:
    if not callable(f):
        raise TypeError(f"`{what}` got {naming.shown(f)}; it takes a function without arguments")
    if inspect.iscoroutinefunction(f) or inspect.isgeneratorfunction(f):
        raise TypeError(
            with_hint(
                f"`{what}` got {naming.shown(f)}, which is async or yields: a stage is a plain "
                "function",
                "write `def`; it is recorded once and waits for nothing",
            )
        )
    return f
