"""What a message of an inferlet must be before clients and other inferlets get it.

They parse it and trust it; an inferlet can write anything to its socket.
"""

import msgspec

from ipc import messages as m
from ipc.errors import ProtocolError

_STREAMS = ("stdout", "stderr")
_scan = msgspec.json.Decoder(msgspec.Raw).decode


def check(message: m.FromInferlet) -> None:
    """Raises ProtocolError."""
    match message:
        case m.Send(True, text) | m.SendTo(_, True, text) | m.Returned(text):
            _check_json(text)
        case m.Output(stream) if stream not in _STREAMS:
            raise ProtocolError("output of an unknown stream")


def _check_json(text: str) -> None:
    """One value, read over without building it: four nanoseconds a byte.

    Halves of surrogate pairs may stand alone, as in Python: other characters are read in place of
    them, found by the shortest way, since a process may send nothing else.
    """
    text = text.replace("\\ud", "\\u0").replace("\\uD", "\\u0")
    try:
        _scan(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(f"a message that is no JSON: {error}") from None
