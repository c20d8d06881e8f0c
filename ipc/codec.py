"""Encoders and typed decoders, made once. Bytes that do not decode are a ProtocolError."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ipc import messages as m
from ipc.errors import ProtocolError

PROTOCOL_VERSION = 1

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

_commands = msgspec.msgpack.Decoder(list[m.Command])
_events = msgspec.msgpack.Decoder(list[m.Event])
_to_inferlet = msgspec.msgpack.Decoder(m.ToInferlet)
_from_inferlet = msgspec.msgpack.Decoder(m.FromInferlet)


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
