"""The core nouns: processes and what they own, fires, runs, waves. Counts: no tensors, no policy.

    commands.py  changes them as inferlets ask         scheduler.py  says what may run next
    settle.py    commits, fails, undoes and drops      launch.py     computes a wave
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipc.eta.graph import Program
from ipc.geometry import Slots
from ipc.messages import Event
from ipc.types import Limits, ModelInfo
from worker import trunk
from worker.changes import Change
from worker.config import Config
from worker.definitions import Channel, Lanes, Pass, ProgramTable, Rings
from worker.history import Unread, root_key
from worker.pages import Move, PagePool
from worker.swap import Swap
from worker.working_set import WorkingSet, references, saved_references

if TYPE_CHECKING:
    from worker.ports import View


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
    cut: int = 0  # where it stops if its rows, once placed, turn out not to attend each other

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
    ended: dict[int, tuple[int, int]] = field(default_factory=dict)  # last counts, not reported yet
    computing: dict[bytes, Fire] = field(default_factory=dict)  # keys of pages in progress
    accepted: int = 0
    retire: Callable[[], object] = lambda: None  # tells of all waves launched so far

    def __post_init__(self) -> None:
        self.swap = Swap(self.pool, self.config.swap_pages)

    def emit(self, process: Process, event: Event) -> None:
        self.events.setdefault(process.number, []).append(event)

    def forget(self, process: Process) -> None:
        """It has ended: what it computed is still to be reported."""
        del self.processes[process.number]
        self.ended[process.number] = process.tokens_in, process.tokens_out

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
