"""What a client and the hub say to each other, each message one ZeroMQ part. Both are trusted.

Holds the two unions and their codec; the messages are in client_requests.py and client_answers.py,
and have all their names here.
"""

from ipc import codec
from ipc.client_answers import *
from ipc.client_answers import (
    Answered, Attached, EngineFailed, Error, Facts, FileData, Killed, Launched, Log, Printed, Processes,
    Progress, Queued, Receiving, Refused, Returned, Sent, Stored, Taken, Timeline, Unknown, Welcome,
)  # fmt: skip
from ipc.client_requests import *
from ipc.client_requests import (
    AskFacts, Attach, CloseInput, Detach, FilePart, Hello, Kill, Leave, List, Message, ReadFile,
    ReadLog, ReadTrace, Run, Shown, StopEngine,
)  # fmt: skip

FromClient = (
    Hello | Run | Message | CloseInput | Kill | List | StopEngine | Shown | Attach | Detach
    | ReadLog | FilePart | ReadTrace | AskFacts | Leave | ReadFile
)  # fmt: skip

FromHub = (
    Welcome | Progress | Launched | Refused | Sent | Printed | Receiving | Taken | Returned
    | Error | EngineFailed | Processes | Killed | Queued | Answered | Attached | Unknown | Log
    | Stored | Timeline | Facts | FileData
)  # fmt: skip

encode = codec.encode
_from_client = codec.make_decoder(FromClient)
_from_hub = codec.make_decoder(FromHub)


def decode_from_client(data: bytes | memoryview) -> FromClient:
    return codec.decode(_from_client, data)


def decode_from_hub(data: bytes | memoryview) -> FromHub:
    return codec.decode(_from_hub, data)
