"""Encoders and typed decoders, made once. Bytes that do not decode are a ProtocolError."""

import signal
from collections.abc import Sequence
from typing import Any

import msgspec

from ipc import messages as m
from ipc.errors import ProtocolError

PROTOCOL_VERSION = 1

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode


def make_decoder(kind: Any) -> msgspec.msgpack.Decoder:
    """A typed decoder. A Ctrl-C that comes meanwhile is raised after it is made."""
    # msgspec runs Python code to read types, and swallows an exception in there, or crashes of it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return msgspec.msgpack.Decoder(kind)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_commands = make_decoder(list[m.Command])
_events = make_decoder(list[m.Event])
_to_inferlet = make_decoder(m.ToInferlet)
_from_inferlet = make_decoder(m.FromInferlet)


def decode(decoder: msgspec.msgpack.Decoder, data: bytes | memoryview) -> Any:
    """The value in `data`. ProtocolError: malformed, of another type, or nested too deeply."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)) from None


def encode_commands(commands: Sequence[m.Command]) -> bytes:
    return encode(list(commands))


def decode_commands(data: bytes | memoryview) -> list[m.Command]:
    return decode(_commands, data)


def encode_events(events: Sequence[m.Event]) -> bytes:
    return encode(list(events))


def decode_events(data: bytes | memoryview) -> list[m.Event]:
    return decode(_events, data)


def decode_to_inferlet(data: bytes | memoryview) -> m.ToInferlet:
    return decode(_to_inferlet, data)


def decode_from_inferlet(data: bytes | memoryview) -> m.FromInferlet:
    return decode(_from_inferlet, data)
