"""Every message between processes: array-like structs with integer tags.

Rules of evolution: a new field has a default; fields are only appended; a field never changes its
type; a tag is never reused. No command to the worker has a reply: a failure names the fire.

    inferlet -> worker   Command       (the hub relays the bytes)
    worker -> inferlet   Event
    inferlet <-> hub     FromInferlet / ToInferlet   (process_messages.py)
    hub -> worker        Control       (part 0 of a link message, see transport.py)
"""

from ipc.errors import Failure
from ipc.process_messages import *  # noqa: F403 - one name for all messages
from ipc.types import EngineInfo, Limits, ModelInfo, PassSpec, TensorType, WireMessage

# ---- inferlet -> worker. Handles (ids) are numbered by the inferlet, each kind from 0.


class DefineProgram(WireMessage, tag=1):
    """Canonical bytes of one stage; the worker computes the id and checks them once."""

    code: bytes


class DefineChannel(WireMessage, tag=2):
    channel: int
    cell: TensorType
    capacity: int


class DefinePass(WireMessage, tag=3):
    spec: PassSpec


class BindState(WireMessage, tag=4):
    """Other working sets, one per lane, for later submits of the pass."""

    pass_id: int
    working_sets: tuple[int, ...]


class Put(WireMessage, tag=5):
    """One cell from the host, row-major little-endian bytes: the next cell of the channel."""

    channel: int
    data: bytes


class SetCell(WireMessage, tag=6):
    """Replaces the front cell that the next submitted fire will find."""

    channel: int
    data: bytes


class Watch(WireMessage, tag=7):
    """From now on every cell of the channel, present ones first, is sent to the host and dropped here."""

    channel: int


class OpenWorkingSet(WireMessage, tag=8):
    working_set: int


class Fork(WireMessage, tag=9):
    """`child` has the state of `parent` after all passes submitted to `pipeline` before."""

    parent: int
    child: int
    pipeline: int


class OpenPipeline(WireMessage, tag=10):
    pipeline: int


class Submit(WireMessage, tag=11):
    """Fire `seq` of the pipeline: the pass once. Sequence numbers rise, and are never reused.

    `follows`: of a frame, and not its first entry: it runs in the wave after that of the entry before.
    """

    pipeline: int
    pass_id: int
    seq: int
    follows: bool = False


class RunAhead(WireMessage, tag=12):
    """Fires `[first_seq, first_seq + budget)` of one pass; at most `credits` may start before more come."""

    pipeline: int
    pass_id: int
    first_seq: int
    budget: int
    credits: int


class Credit(WireMessage, tag=13):
    """The run may start `fires` more."""

    pipeline: int
    fires: int


class Stop(WireMessage, tag=14):
    """Ends the run. State becomes exactly that after fire `last_seq`: later fires are undone."""

    pipeline: int
    last_seq: int


class Park(WireMessage, tag=15):
    pipeline: int


class ClosePipeline(WireMessage, tag=16):
    """Accepted fires settle; the handle may be reused never."""

    pipeline: int


class DropWorkingSet(WireMessage, tag=17):
    """Memory is released after accepted fires that use it have settled."""

    working_set: int


class DropChannel(WireMessage, tag=18):
    channel: int


class DropPass(WireMessage, tag=19):
    pass_id: int


class Reserve(WireMessage, tag=20):
    """Slots below `end` of the working set may be written. No memory is taken."""

    working_set: int
    end: int


Command = (
    DefineProgram | DefineChannel | DefinePass | BindState | Put | SetCell | Watch | OpenWorkingSet
    | Fork | OpenPipeline | Submit | RunAhead | Credit | Stop | Park | ClosePipeline
    | DropWorkingSet | DropChannel | DropPass | Reserve
)  # fmt: skip

# ---- worker -> inferlet


class Fired(WireMessage, tag=1):
    """Fire `seq` is committed. `results`: the epilogue's tensors; `cells`: what watched channels got.

    Both are row-major little-endian bytes. `appended`: rows appended per lane, given only when the
    host may not know it (device-made tokens may be absent, or the placement is explicit). `frozen`: by
    how much each lane's frozen prefix has grown, given when that differs. `cached`: by how many tokens each lane's
    leading part from the prefix cache has grown; nothing when none has.
    """

    pipeline: int
    seq: int
    results: tuple[bytes, ...] = ()
    cells: tuple[tuple[int, bytes], ...] = ()
    appended: tuple[int, ...] = ()
    cached: tuple[int, ...] = ()
    frozen: tuple[int, ...] = ()


class Cells(WireMessage, tag=2):
    """Cells that a channel held when it began to be watched, oldest first."""

    channel: int
    cells: tuple[bytes, ...]


class Failed(WireMessage, tag=3):
    """Fire `seq` failed: the pipeline has failed, later accepted fires are dropped."""

    pipeline: int
    seq: int
    failure: Failure


class Goodbye(WireMessage, tag=4):
    """The worker drops this process (it broke the protocol or a limit)."""

    failure: Failure


Event = Fired | Cells | Failed | Goodbye

# ---- hub -> worker


class ProcessStarted(WireMessage, tag=1):
    """Cached pages are shared between equal salts only; higher priorities are served first."""

    number: int  # the hub's number of the process, never reused
    limits: Limits
    salt: str = ""
    priority: int = 0


class ProcessEnded(WireMessage, tag=2):
    """All that the process owned is free within one wave."""

    number: int


class Shutdown(WireMessage, tag=3):
    pass


Control = ProcessStarted | ProcessEnded | Shutdown

# ---- worker -> hub, outside of waves


class Loading(WireMessage, tag=1):
    """Progress of start-up; `fraction` in [0, 1]."""

    fraction: float
    text: str


class Ready(WireMessage, tag=2):
    model: ModelInfo
    engine: EngineInfo
    timings: dict[str, float]  # seconds: import, load, warm_up


class LoadFailed(WireMessage, tag=3):
    message: str
    hint: str = ""


class ProcessStats(WireMessage, tag=4):
    """Per process number: (tokens in, tokens out, pages). Sent at most once a second.

    `ended`: the last counts (tokens in, tokens out) of those that ended since the report before.
    """

    processes: dict[int, tuple[int, int, int]]
    pages_free: int
    pages_total: int
    waves: int
    messages_in: int
    messages_out: int
    ended: dict[int, tuple[int, int]] = {}


class LinkRead(WireMessage, tag=5):
    """So many bytes of the hub's messages were read since the link began. The links' own affair."""

    num_bytes: int


WorkerReport = Loading | Ready | LoadFailed | ProcessStats | LinkRead
