"""What a client says to the hub. Each request with a `request` is answered with that number.

Rules of evolution as in messages.py. A client greets with Hello and sends the rest after Welcome.
"""

import msgspec

from ipc.messages import FILE_PART, MAX_FILE
from ipc.types import WireMessage

__all__ = [
    "FILE_PART", "MAX_FILE", "MAX_FILES", "MAX_MESSAGE", "AskFacts", "Asked", "Attach", "CloseInput",
    "Detach", "FilePart", "Hello", "Kill", "Leave", "List", "Message", "ReadFile", "ReadLog",
    "ReadTrace", "Run", "Shown", "StopEngine",
]  # fmt: skip

MAX_MESSAGE = 1 << 30  # bytes; a Run carries the attached files
MAX_FILES = 256 << 20  # bytes, all attached files of one launch


class Hello(WireMessage, tag=1):
    """`pid` is watched: when it ends, so do the processes that it launched and did not detach.

    `user`: the client that this connection speaks for: its Messages reach that client's processes.
    `remote`: it comes over the network, and its key says for whom; it may see and do no more than
    that client's own.
    """

    protocol: int
    pid: int
    user: str
    remote: bool = False


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """`--limit`: the limits of one launch by their keys; None: the engine's own.

    Above the engine's own is a Refused. Bytes, unless another unit is named.
    """

    memory: int | None = None  # beyond a bare launch
    cpu: int | None = None  # seconds
    pages: int | None = None
    pipelines: int | None = None
    channels: int | None = None
    passes: int | None = None  # queued
    descriptors: int | None = None
    output: int | None = None
    messages: int | None = None  # a second
    inbox: int | None = None  # messages


class Run(WireMessage, tag=2):
    """Launch an app. The answer, Launched or Refused, carries `request`; Queued may come before."""

    request: int
    app: str
    source: str
    modules: dict[str, str]
    input: str  # JSON object
    files: dict[str, bytes]
    name: str | None = None  # the process's id; None: the hub chooses
    timeout: float | None = None  # seconds from the launch
    detach: bool = False  # it outlives this connection, which hears of its launch alone
    salt: str = ""  # cached pages are shared between equal salts only
    priority: int = 0  # higher goes first, also among launches that wait
    limits: Asked = Asked()
    client: str | None = None  # whose process it is; None: this connection's `user`
    files_folder: str = ""  # absolute: where files of the app are stored; "": $PIE_HOME/files


class Message(WireMessage, tag=3):
    """For the process's inbox: text, or JSON text. Answered by Taken, once the app has it.

    With a `request`, not 0, by Answered too, at once. Without, it is taken even by a full inbox:
    the client keeps the number of those not Taken low.
    """

    process: str
    is_json: bool
    text: str
    request: int = 0


class CloseInput(WireMessage, tag=4):
    """Nothing more comes from the client for the process's inbox."""

    process: str


class Kill(WireMessage, tag=5):
    """End processes. `interrupted`: their own client was interrupted (Ctrl-C)."""

    processes: tuple[str, ...]
    interrupted: bool = False


class List(WireMessage, tag=6):
    """Answered by Processes."""


class StopEngine(WireMessage, tag=7):
    pass


class Shown(WireMessage, tag=8):
    """The client has dealt with `size` more of what the process sent and printed (see `weight`)."""

    process: str
    size: int


class Attach(WireMessage, tag=9):
    """Hear of a process: Attached, then what is kept of the past and all that comes, to its end.

    The past comes as Sent, Printed and Stored with their own times, then Receiving if the app has
    asked for messages or a file. Of a process that has ended, its terminal message is the last. Without
    `past`, only what comes. Unknown when there is no such process. Shown is due as for a Run.
    """

    request: int
    process: str
    past: bool = True


class Detach(WireMessage, tag=10):
    """Hear no more of a process that was attached to, or whose log is followed."""

    process: str


class ReadLog(WireMessage, tag=11):
    """The kept stdout and stderr: answered by Log, or Unknown.

    With `follow` Printed comes for what is printed later, and the terminal message. Shown is due.
    """

    request: int
    process: str
    follow: bool = False


class FilePart(WireMessage, tag=12):
    """A part of a file for the process's `receive_file`, of at most FILE_PART bytes.

    `request` names the file: its parts follow one another. Answered once, by Answered, after the
    last part or at the first that cannot be taken. An empty file is one empty part.
    """

    request: int
    process: str
    size: int  # of the whole file
    data: bytes
    sha256: bytes = b""  # of the whole file, with the last part: 32 bytes


class ReadTrace(WireMessage, tag=13):
    """What a process did and when: answered by Timeline, or Unknown."""

    request: int
    process: str


class AskFacts(WireMessage, tag=14):
    """Answered by Facts."""

    request: int


class Leave(WireMessage, tag=15):
    """This connection is closed, though its process may live on: as if the process had ended."""


class ReadFile(WireMessage, tag=16):
    """A part of a file that a process has sent, from `offset` on: answered by FileData, or Unknown.

    `number`: as in Stored.
    """

    request: int
    process: str
    number: int
    offset: int
