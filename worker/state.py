"""The core nouns: processes and what they own, fires, runs, waves. Counts: no tensors, no policy.

    commands.py  changes them as inferlets ask         scheduler.py  says what may run next
    settle.py    commits, fails, undoes and drops      launch.py     computes a wave
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from ipc.eta.encode import decode, program_id
from ipc.eta.graph import Program
from ipc.geometry import Slots
from ipc.messages import Event
from ipc.types import Limits, ModelInfo, PassSpec, TensorType
from worker import trunk
from worker.changes import Change
from worker.config import Config
from worker.history import Unread, root_key
from worker.pages import Move, PagePool
from worker.swap import Swap
from worker.working_set import WorkingSet, references, saved_references

if TYPE_CHECKING:
    from worker.ports import Ports, View

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


@dataclass(slots=True, eq=False)
class Fire:
    """One execution of a pass, possibly over several waves."""

    process: Process
    pipeline: Pipeline
    pass_: Pass
    seq: int
    sets: tuple[WorkingSet, ...]
    order: int  # of acceptance, over all processes
    run: Run | None = None
    lanes: Lanes | None = None  # known once the tokens are
    tokens_stay: bool = False  # on the device: the ids in `lanes` are placeholders
    rows_done: int = 0
    begun: bool = False
    spare: list[int] = field(default_factory=list)  # pages for the rows, until they are placed
    view: View | None = None  # where the rows are, if that is not simply the end of their sets
    work: Any = None  # what launch.py keeps of it between waves
    follows: bool = False  # of a frame: in the wave after that of the fire before
    keys: list[list[bytes]] | None = None  # of the pages that each lane completes, if looked up
    whole_lanes: Lanes | None = None  # `lanes` before rows were skipped
    skipped: tuple[int, ...] = ()  # leading rows of each lane that the cache has
    cached: tuple[int, ...] = ()  # by how much the lanes' `cached` grew
    unread: list[Unread] | None = None  # one for each row, when the tokens stay

    @property
    def readout(self) -> Sequence[int]:
        """Rows of the pass that are read out, in lane order."""
        return self.pass_.spec.readout if self.view is None else self.view.readout

    @property
    def num_rows(self) -> int:
        """Present rows to compute; an upper bound until the tokens are known."""
        return self.pass_.spec.num_rows if self.lanes is None else len(self.lanes.ids)

    @property
    def appended(self) -> tuple[int, ...]:
        """Rows that each lane gets, computed or not."""
        if not self.skipped:
            return tuple(self.lane_rows)
        return tuple(rows + more for rows, more in zip(self.lanes.counts, self.skipped))

    @property
    def lane_rows(self) -> list[int]:
        """Rows of each lane, likewise."""
        return self.pass_.row_counts if self.lanes is None else self.lanes.counts


@dataclass(slots=True)
class Undo:
    """How to take back one fire of a run."""

    seq: int
    channels: list[tuple[Channel, int, int]]  # popped, appended
    sets: list[tuple[WorkingSet, Change]]


@dataclass(slots=True, eq=False)
class Run:
    """Fires `[first_seq, first_seq + budget)` of one pass, started as credits allow."""

    process: Process
    pass_: Pass
    sets: tuple[WorkingSet, ...]
    first_seq: int
    budget: int
    credits: int  # fires that may start, in total
    window: int  # the host never credits more beyond those that it has delivered
    order: int
    started: int = 0  # committed fires
    ended: bool = False
    next_fire: Fire | None = None
    last_fire: Fire | None = None  # committed, and free to be the next one
    before: Slots | None = None  # of the first fire, while all fires are single: instead of `undo`
    undo: deque[Undo] = field(default_factory=deque)

    @property
    def may_start(self) -> bool:
        return self.started < min(self.budget, self.credits)

    @property
    def first_undoable(self) -> int:
        """Fires before it have reached the host for certain: no Stop takes them back."""
        return self.first_seq + max(self.credits - self.window, 0)


@dataclass(slots=True, eq=False)
class ForkPoint:
    """A fork that waits for its turn in the pipeline."""

    pipeline: Pipeline
    parent: WorkingSet
    child: WorkingSet


@dataclass(slots=True, eq=False)
class CellChange:
    """A SetCell that waits for its turn in the pipeline."""

    channel: Channel
    data: bytes


Item = Fire | Run | ForkPoint | CellChange


@dataclass(slots=True, eq=False)
class Pipeline:
    """An ordering domain: `queue` takes effect from the left."""

    process: Process
    number: int
    queue: deque[Item] = field(default_factory=deque)
    last_run: Run | None = None  # what a Stop means: nothing was accepted after it
    next_seq: int = 0
    failed_seq: int = -1  # the fire that failed the pipeline
    failed: bool = False
    closed: bool = False
    parked: bool = False  # no submit is expected soon


@dataclass(slots=True, eq=False)
class Process:
    """All that one inferlet owns here. Also the account of its pages."""

    number: int
    limits: Limits
    salt: str = ""
    priority: int = 0  # higher goes first
    programs: dict[bytes, Program] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    passes: dict[int, Pass] = field(default_factory=dict)
    working_sets: dict[int, WorkingSet] = field(default_factory=dict)
    pipelines: dict[int, Pipeline] = field(default_factory=dict)
    live_channels: set[Channel] = field(default_factory=set)  # with those dropped but in use
    live_sets: set[WorkingSet] = field(default_factory=set)
    active: dict[Pipeline, None] = field(default_factory=dict)  # with a queue, in fair order
    pages: int = 0
    queued: int = 0  # items in all queues
    program_bytes: int = 0
    channel_bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    ended: bool = False
    root: bytes = b""  # what the keys of its pages begin with

    def __post_init__(self) -> None:
        self.root = root_key(self.salt)


@dataclass(slots=True)
class Segment:
    """Present rows `[start, stop)` of one fire, computed in one wave."""

    fire: Fire
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        return self.stop >= self.fire.num_rows


@dataclass(slots=True)
class Wave:
    number: int
    segments: list[Segment]
    moves: list[tuple[Move, int, int]]  # of pages, to be carried out first, in order


@dataclass(eq=False)
class State:
    """Everything that the commands change and the scheduler reads."""

    model: ModelInfo
    pool: PagePool
    rings: Rings
    config: Config
    programs: ProgramTable = field(default_factory=ProgramTable)
    processes: dict[int, Process] = field(default_factory=dict)
    active: dict[Process, None] = field(default_factory=dict)  # with active pipelines, fair order
    turns: dict[Pipeline, None] = field(default_factory=dict)  # forks and cell changes are queued
    expected: set[Pipeline] = field(default_factory=set)  # whose next submit usually follows
    events: dict[int, list[Event]] = field(default_factory=dict)  # to be sent, by process number
    computing: dict[bytes, Fire] = field(default_factory=dict)  # keys of pages in progress
    accepted: int = 0
    retire: Callable[[], object] = lambda: None  # tells of all waves launched so far

    def __post_init__(self) -> None:
        self.swap = Swap(self.pool, self.config.swap_pages)

    def emit(self, process: Process, event: Event) -> None:
        self.events.setdefault(process.number, []).append(event)

    def recharge(self, process: Process) -> None:
        """Pages that only other processes hold are no longer charged to this one."""
        own = set().union(*references(process.live_sets))
        for other in self.processes.values():
            if other is not process:
                for pages in references(other.live_sets):
                    others = [page for page in pages if page not in own]
                    self.pool.charge(others, other, instead_of=process)

    def next_order(self) -> int:
        self.accepted += 1
        return self.accepted

    def check_integrity(self) -> None:
        """AssertionError unless pages, reference counts and accounts agree (at any time)."""
        sets = [held for process in self.processes.values() for held in process.live_sets]
        self.pool.check_integrity(references(sets))
        self.swap.check_integrity(saved_references(sets))
        trunk.check_integrity((held.trunk, held.saved is None) for held in sets)
        assert all(not (held.pages and held.saved) for held in sets), "a suspended set holds pages"
        charges = self.pool.charges()
        for process in self.processes.values():
            charged = charges[process]
            assert process.pages == charged, f"process {process.number} counts wrong pages"
        assert all(fire.begun for fire in self.computing.values()), "nobody computes a page"
