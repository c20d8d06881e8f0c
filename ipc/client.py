"""What a client and the hub say to each other, each message one ZeroMQ part. Both are trusted.

Rules of evolution as in messages.py. A client greets with Hello and sends the rest after Welcome.
"""

import msgspec

from ipc import codec
from ipc import messages as m

MAX_MESSAGE = 1 << 30  # bytes; a Run carries the attached files
MAX_FILES = 256 << 20  # bytes, all attached files of one launch


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---- client -> hub


class Hello(_Message, tag=1):
    """`pid` is watched: when it ends, so do the processes that it launched and did not detach."""

    protocol: int
    pid: int
    user: str


class Run(_Message, tag=2):
    """Launch an app. The answer, Launched or Refused, carries `request`."""

    request: int
    app: str
    source: str
    modules: dict[str, str]
    input: str  # JSON object
    files: dict[str, bytes]
    name: str | None = None  # the process's id; None: the hub chooses
    timeout: float | None = None  # seconds from the launch
    detach: bool = False
    salt: str = ""  # cached pages are shared between equal salts only
    priority: int = 0  # higher goes first


class Message(_Message, tag=3):
    """For the process's inbox: text, or JSON text. Answered by Taken, later."""

    process: str
    is_json: bool
    text: str


class CloseInput(_Message, tag=4):
    """Nothing more comes for the process's inbox."""

    process: str


class Kill(_Message, tag=5):
    """End processes. `interrupted`: their own client was interrupted (Ctrl-C)."""

    processes: tuple[str, ...]
    interrupted: bool = False


class List(_Message, tag=6):
    pass


class StopEngine(_Message, tag=7):
    pass


class Shown(_Message, tag=8):
    """The client has dealt with `size` more of what the process sent and printed (see `weight`)."""

    process: str
    size: int


FromClient = Hello | Run | Message | CloseInput | Kill | List | StopEngine | Shown

# ---- hub -> client. `time` is seconds since 1970.


class Welcome(_Message, tag=1):
    protocol: int
    model: str
    ready: bool  # False: Progress follows


class Progress(_Message, tag=2):
    """The engine is starting; `fraction` in [0, 1], 1 once it is ready."""

    fraction: float
    text: str


class Launched(_Message, tag=3):
    request: int
    process: str
    time: float
    sandbox: str


class Refused(_Message, tag=4):
    """The Run was not launched, by the client's fault: exit code 2."""

    request: int
    message: str
    hint: str = ""


class Sent(_Message, tag=5):
    """The app's `session.send`."""

    process: str
    time: float
    is_json: bool
    text: str


class Printed(_Message, tag=6):
    process: str
    time: float
    stream: str  # "stdout" | "stderr"
    text: str


class Receiving(_Message, tag=7):
    """The app waits for messages: the client may read its stdin."""

    process: str


class Taken(_Message, tag=8):
    """The process has room for `count` more Messages of this client."""

    process: str
    count: int


class Returned(_Message, tag=9):
    """Terminal: the value of `main` as JSON text."""

    process: str
    time: float
    value: str


class Error(_Message, tag=10):
    """Terminal. `exit`: the code of `pie run`; `limit`: which one ended the process."""

    process: str
    time: float
    error: str  # the type of the error
    message: str
    traceback: str
    exit: int
    limit: str | None = None


class EngineFailed(_Message, tag=11):
    """The engine is lost or could not start; it ends. Terminal for all processes: exit code 3."""

    message: str
    hint: str = ""


class ProcessRow(_Message):
    """One live process for `pie ps`; None where it is not known."""

    id: str
    app: str
    client: str
    state: str
    age: float
    tokens_in: int | None
    tokens_out: int | None
    pages: int | None
    memory: int | None
    sandbox: str


class Processes(_Message, tag=12):
    rows: tuple[ProcessRow, ...]
    worker: m.ProcessStats | None = None  # its newest report; None before the first


class Killed(_Message, tag=13):
    """Answer to Kill: the ids that no process has."""

    unknown: tuple[str, ...]


FromHub = (
    Welcome | Progress | Launched | Refused | Sent | Printed | Receiving | Taken | Returned
    | Error | EngineFailed | Processes | Killed
)  # fmt: skip


def weight(text: str) -> int:
    """What a Sent or Printed counts in Shown: its text, and what any message costs."""
    return len(text) + 64


encode = codec.encode
_from_client = msgspec.msgpack.Decoder(FromClient)
_from_hub = msgspec.msgpack.Decoder(FromHub)


def decode_from_client(data: bytes | memoryview) -> FromClient:
    return codec.decode(_from_client, data)


def decode_from_hub(data: bytes | memoryview) -> FromHub:
    return codec.decode(_from_hub, data)
