"""What the hub says to a client. `time` is seconds since 1970.

Rules of evolution as in messages.py.
"""

from ipc import messages as m
from ipc.types import Limits, WireMessage

# What becomes of a message or file for a process.
ACCEPTED = "accepted"
UNKNOWN = "unknown"  # no live process has that id
OTHER_CLIENT = "other client"  # it is another client's
FULL = "full"  # its inbox is
DAMAGED = "damaged"  # a file's parts do not fit its size or SHA-256
CLOSED = "closed"  # the client has closed its end: nothing more comes
FAILED = "failed"  # a file could not be kept: `reason` says why


class Welcome(WireMessage, tag=1):
    protocol: int
    model: str
    ready: bool  # False: Progress follows
    listens: str = ""  # the address at which it takes clients of other machines; "": none


class Progress(WireMessage, tag=2):
    """The engine is starting; `fraction` in [0, 1], 1 once it is ready."""

    fraction: float
    text: str


class Launched(WireMessage, tag=3):
    request: int
    process: str
    time: float
    sandbox: str


class Refused(WireMessage, tag=4):
    """The Run was not launched, by the client's fault: exit code 2."""

    request: int
    message: str
    hint: str = ""


class Sent(WireMessage, tag=5):
    """The app's `session.send`."""

    process: str
    time: float
    is_json: bool
    text: str


class Printed(WireMessage, tag=6):
    process: str
    time: float
    stream: str  # "stdout" | "stderr"
    text: str


class Receiving(WireMessage, tag=7):
    """The app waits for messages, or for a file: the client may read its stdin."""

    process: str


class Taken(WireMessage, tag=8):
    """The app has received `count` more Messages of this connection."""

    process: str
    count: int


class Returned(WireMessage, tag=9):
    """Terminal: the value of `main` as JSON text."""

    process: str
    time: float
    value: str


class Error(WireMessage, tag=10):
    """Terminal. `exit`: the code of `pie run`; `limit`: which one ended the process."""

    process: str
    time: float
    error: str  # the type of the error
    message: str
    traceback: str
    exit: int
    limit: str | None = None


class EngineFailed(WireMessage, tag=11):
    """The engine is lost or could not start; it ends. Terminal for all processes: exit code 3."""

    message: str
    hint: str = ""


class ProcessRow(WireMessage):
    """One live process for `pie ps`; None where it is not known.

    `state`: "queued" (until the host has room), "waiting" (for the engine), "running".
    """

    id: str
    app: str
    client: str
    state: str
    age: float
    tokens_in: int | None
    tokens_out: int | None
    pages: int | None
    memory: int | None  # bytes beyond a bare launch
    sandbox: str
    model: str = ""
    cpu: float | None = None  # seconds, user and system
    position: int | None = None  # in the queue, from 1
    inbox: int = 0  # messages that the app has not received
    views: int = 0  # connections that hear of it
    priority: int = 0


class Processes(WireMessage, tag=12):
    rows: tuple[ProcessRow, ...]
    worker: m.ProcessStats | None = None  # its newest report; None before the first


class Killed(WireMessage, tag=13):
    """Answer to Kill: the ids that no process has."""

    unknown: tuple[str, ...]


class Queued(WireMessage, tag=14):
    """The launch waits until the host has room: `position` from 1. Told again as it moves up."""

    request: int
    process: str
    position: int
    reason: str


class Answered(WireMessage, tag=15):
    """What became of a Message with a `request`, or of a file: ACCEPTED … FAILED."""

    request: int
    outcome: str
    reason: str = ""


class Attached(WireMessage, tag=16):
    """Answer to Attach. `missed`: how many events of the past are kept no more."""

    request: int
    process: str
    app: str
    client: str
    model: str
    sandbox: str
    time: float  # of the launch
    live: bool
    missed: int = 0


class Unknown(WireMessage, tag=17):
    """Answer to what names a process: none with that id lives or is remembered."""

    request: int
    process: str


class Log(WireMessage, tag=18):
    """Answer to ReadLog, oldest first. `missed`: bytes that are kept no more, before these."""

    request: int
    process: str
    printed: tuple[Printed, ...]
    live: bool
    missed: int = 0


class Stored(WireMessage, tag=19):
    """The app's `session.send_file`: its file lies at `path`; `number` counts them from 1.

    When it could not be stored, `path` is where it was to lie and `error` says why.
    """

    process: str
    time: float
    number: int
    path: str
    size: int
    sha256: str  # hexadecimal
    error: str = ""


class Span(WireMessage):
    """Something that a process did: from `start` to `end`, equal for what takes no time.

    `kind`: "process", "pass", "message", "output", "file". `facts`: further words and numbers.
    """

    kind: str
    name: str
    start: float
    end: float
    facts: dict[str, int | float | str] = {}


class Timeline(WireMessage, tag=20):
    """Answer to ReadTrace, by start. `missed`: how many happenings are kept no more."""

    request: int
    process: str
    app: str
    spans: tuple[Span, ...]
    live: bool
    missed: int = 0


class Facts(WireMessage, tag=21):
    """Answer to AskFacts: the engine as it is. None where it is not known yet."""

    request: int
    pid: int
    started: float
    python: str
    protocol: int
    model: m.ModelInfo | None
    engine: m.EngineInfo | None
    tier: str  # of the sandbox
    sandbox: str  # the same, described
    log: str
    limits: Limits  # of each process, unless a launch lowers them
    max_processes: int
    live: int
    queued: int
    clients: int
    launched: int  # since it started
    worker_pid: int
    worker_starts: int
    zygote_pid: int | None
    zygote_starts: int
    memory: int  # resident bytes of the hub


class FileData(WireMessage, tag=22):
    """Answer to ReadFile: at most FILE_PART bytes; empty at the end. `error`: why there are none."""

    request: int
    process: str
    data: bytes
    error: str = ""


def weight(text: str) -> int:
    """What a Sent, Printed or Stored counts in Shown: its text (path), and what each costs."""
    return len(text) + 64
