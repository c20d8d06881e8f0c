"""What inferlets define: channels, programs, and passes bound to them. Counts: no tensors.

A pass stays as it was defined; only its working sets may be bound anew. A channel counts its cells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from ipc.eta.encode import decode, program_id
from ipc.eta.graph import Program
from ipc.types import PassSpec, TensorType

if TYPE_CHECKING:
    from worker.ports import Ports
    from worker.state import Pipeline

Outputs = dict[tuple[int, str], TensorType]


class Rings(Protocol):
    """Where the cells are. The state counts, rings hold."""

    def allocate(self, cell: TensorType, count: int) -> int:
        """The first of `count` neighbouring free cells."""
        ...

    def free(self, cell: TensorType, base: int, count: int) -> None: ...

    def write(self, cell: TensorType, index: int, data: bytes) -> None: ...

    def read(self, cell: TensorType, indices: Sequence[int]) -> list[bytes]: ...


class StageKey:
    """Stages with the same key (one object) run as one stacked call."""

    __slots__ = ("__weakref__",)


class ProgramTable:
    """Programs and keys of stages, shared by all processes for as long as one of them has them."""

    def __init__(self) -> None:
        self._programs: WeakValueDictionary[bytes, Program] = WeakValueDictionary()
        self._keys: WeakValueDictionary[tuple, StageKey] = WeakValueDictionary()

    def key(self, *parts: object) -> StageKey:
        """Equal parts give the same key: comparing it every wave costs nothing."""
        return self._keys.setdefault(parts, StageKey())

    def decode(self, code: bytes) -> tuple[bytes, Program]:
        """(id, program) of canonical bytes; `ipc.eta.encode.DecodeError` for any others."""
        number = program_id(code)
        program = self._programs.get(number)
        if program is None:
            program = self._programs[number] = decode(code)
        return number, program


@dataclass(slots=True, eq=False)
class Channel:
    """Host mirror of a channel: cell `n` ever committed lies at `base + n % ring`.

    cells:  ... [taken - window, taken)   kept, so that fires in flight can be undone
                [taken, written)          held: `taken` is the front
    """

    number: int
    cell: TensorType
    capacity: int
    ring: int
    base: int
    written: int = 0
    taken: int = 0
    backlog: deque[bytes] = field(default_factory=deque)  # host puts that wait for room
    pipeline: Pipeline | None = None  # the one that all passes using it belong to
    watched: bool = False
    dropped: bool = False
    uses: int = 0  # accepted fires, runs and changes that refer to it
    accepted_pops: int = 0  # what accepted submits will still pop
    may_be_absent: bool = False  # a cell may hold an id that is no token
    fed_by_device: bool = False  # a stage of some pass puts on it

    @property
    def held(self) -> int:
        return self.written - self.taken

    @property
    def front(self) -> int:
        """Index of the front cell."""
        return self.base + self.taken % self.ring

    @property
    def back(self) -> int:
        """Index of the next cell to be written."""
        return self.base + self.written % self.ring


@dataclass(slots=True, eq=False)
class Use:
    """What one fire of a pass does to one channel."""

    channel: Channel
    needs_front: bool
    pops: int
    pops_if_present: bool
    appends: int
    new_from: str


@dataclass(slots=True, eq=False)
class Stage:
    """A program bound to the channels and constants of one pass."""

    name: str  # "prologue" | "epilogue"
    program_id: bytes
    program: Program
    channels: tuple[Channel, ...]
    slot_types: tuple[TensorType, ...]
    outputs: Outputs
    constants: bytes
    key: StageKey
    slot_of: dict[Channel, int]
    steps: int = 0  # of one instance: what it costs, see `ipc.eta.work`
    appended: tuple[int, ...] = ()  # channel slots whose last put a fire appends


@dataclass(slots=True, eq=False)
class Pass:
    spec: PassSpec
    tokens: Channel | None  # None: host-known
    tokens_from_prologue: bool
    lanes: Lanes | None  # None: device-made
    row_counts: list[int]  # of each lane, absent rows included
    uses: tuple[Use, ...]
    prologue: Stage | None
    epilogue: Stage | None
    working_sets: tuple[int, ...]
    pipeline: Pipeline | None = None
    dropped: bool = False
    ports: Ports | None = None  # None: rows go to the end of their sets
    steps: int = 0  # of both stages
    is_single: bool = False  # one row of one lane, appended, read out, and nothing before it

    @property
    def is_exact(self) -> bool:
        """Whether the host knows how many rows a fire appends."""
        return self.tokens is None or not self.tokens.may_be_absent

    @property
    def is_plain(self) -> bool:
        """Whether a cached page may stand for its rows: text, placed by folding, nothing else."""
        return self.ports is None


class Lanes:
    """The present rows of one fire: ids, in row order, and where each lane begins and ends.

    `row_of[r]` is the place of the pass's row `r` among the present ones, -1 for an absent row;
    None when every row is present.
    """

    __slots__ = ("ids", "indptr", "row_of", "counts")

    def __init__(self, tokens: Sequence[int], indptr: Sequence[int]) -> None:
        if min(tokens) >= 0:
            self.ids, self.indptr, self.row_of = list(tokens), indptr, None
        else:
            self._leave_out_absent(tokens, indptr)
        self.counts = [end - start for start, end in pairwise(self.indptr)]

    def without(self, skipped: Sequence[int]) -> Lanes:
        """The same without the first `skipped[i]` present rows of lane i."""
        twin = object.__new__(Lanes)
        twin.ids, twin.indptr, place = [], [0], [-1] * len(self.ids)
        for start, end, left_out in zip(self.indptr, self.indptr[1:], skipped):
            for row in range(start + left_out, end):
                place[row] = len(twin.ids)
                twin.ids.append(self.ids[row])
            twin.indptr.append(len(twin.ids))
        row_of = range(len(self.ids)) if self.row_of is None else self.row_of
        twin.row_of = [place[row] if row >= 0 else -1 for row in row_of]
        twin.counts = [end - start for start, end in pairwise(twin.indptr)]
        return twin

    def regrouped(self, indptr: Sequence[int]) -> Lanes:
        """The same rows in other lanes; `indptr` counts absent rows too."""
        twin = object.__new__(Lanes)
        twin.ids, twin.indptr, twin.row_of = self.ids, list(indptr), self.row_of
        if self.row_of is not None:
            twin.indptr = [sum(row >= 0 for row in self.row_of[:end]) for end in indptr]
        twin.counts = [end - start for start, end in pairwise(twin.indptr)]
        return twin

    def _leave_out_absent(self, tokens: Sequence[int], indptr: Sequence[int]) -> None:
        self.ids = [token for token in tokens if token >= 0]
        present = 0
        self.row_of = []
        starts = []
        for token in tokens:
            starts.append(present)
            self.row_of.append(present if token >= 0 else -1)
            present += token >= 0
        starts.append(present)
        self.indptr = [starts[row] for row in indptr]
