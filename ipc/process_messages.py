"""What the hub and an inferlet say to each other, both ways. All names are in messages.py too.

A frame's first byte says which side of the hub it is for (frames.py).
"""

from ipc.errors import Failure
from ipc.types import EngineInfo, ModelInfo, WireMessage

MAX_FILE = 256 << 20  # bytes, a file sent to or from a process
FILE_PART = 256 << 10  # bytes of a file in one message


class Launch(WireMessage, tag=1):
    """First frame to an inferlet: all that it needs to run."""

    process: str
    app: str  # file name as users see it in tracebacks
    source: str
    modules: dict[str, str]  # module name -> source, importable beside the app
    input: str  # JSON object
    files: dict[str, bytes]
    model: ModelInfo
    engine: EngineInfo


class Inbox(WireMessage, tag=2):
    """One message for `session.receive`: text as it is, JSON as JSON text."""

    is_json: bool
    text: str


class InboxClosed(WireMessage, tag=3):
    """The client has closed its end for good."""


class Engine(WireMessage, tag=4):
    """The worker is gone: every pending await fails with this."""

    failure: Failure


class SentTo(WireMessage, tag=5):
    """Answer to SendTo: "" when the message is in the other's inbox, else why it is not.

    `outcome`: "", "unknown" (no such live process), "other client", "full".
    """

    outcome: str


class FilePart(WireMessage, tag=6):
    """A part of a file that the app asked for; the parts make up `size` bytes."""

    size: int
    data: bytes


class FilesClosed(WireMessage, tag=7):
    """The client has closed its end for good, and all its files were given."""


class Leave(WireMessage, tag=8):
    """The engine is leaving: `main` is cancelled, and is killed unless it ends within seconds."""


ToInferlet = Launch | Inbox | InboxClosed | Engine | SentTo | FilePart | FilesClosed | Leave


class Send(WireMessage, tag=1):
    """`session.send`: text, or JSON text."""

    is_json: bool
    text: str


class Receiving(WireMessage, tag=2):
    """The app asks for messages for the first time: the client may now read its stdin."""


class Output(WireMessage, tag=3):
    """What the app printed. `stream`: "stdout" | "stderr"."""

    stream: str
    text: str


class Returned(WireMessage, tag=4):
    """Terminal: the value of `main` as JSON text."""

    value: str


class Raised(WireMessage, tag=5):
    """Terminal: the error that ended `main`. `traceback` holds the user's own frames only."""

    error: str  # the exception's type
    message: str
    traceback: str
    limit: str = ""  # the limit whose breach it reports, by its key


class SendTo(WireMessage, tag=6):
    """`session.send_to`: for the inbox of another process. Answered by SentTo, in order."""

    process: str
    is_json: bool
    text: str


class Received(WireMessage, tag=7):
    """The app has received `count` more messages of its inbox."""

    count: int


class SendFilePart(WireMessage, tag=8):
    """`session.send_file`: a part of a file; parts of one file follow one another."""

    size: int  # of the whole file
    data: bytes
    sha256: bytes = b""  # of the whole file, with its last part


class ReceivingFile(WireMessage, tag=9):
    """The app waits for one more file."""


FromInferlet = (
    Send | Receiving | Output | Returned | Raised | SendTo | Received | SendFilePart | ReceivingFile
)
