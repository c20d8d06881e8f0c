"""ZMTP 3.1 as a server that takes one client's bytes. Knows frames and the NULL handshake; no socket.

    greeting = 64 bytes: FF, 8 bytes, 7F, version, mechanism padded to 20, filler
    frame    = flags | size: 1 byte, or 8 if LONG | body
    message  = frames with MORE, and one without

ZeroMQ's own sockets bound a frame and the number of messages, but not one message's parts: whoever
sends MORE without end grows them without end. Our clients send messages of one part. So parts of
others are dropped as they come, and are one message that cannot be read.
"""

import struct

from ipc.errors import ProtocolError

MAX_PARTS = 1 << 16  # of one message that cannot be read
MAX_COMMAND = 512  # bytes
SHORT_MESSAGE = 64 << 10  # bytes; more only of who has introduced himself
_GREETING_SIZE = 64
_NULL = b"NULL".ljust(20, b"\0")
_MORE, _LONG, _COMMAND = 1, 2, 4
_LONG_HEADER = struct.Struct(">BQ")
_PING, _PONG, _READY = b"\x04PING", b"\x04PONG", b"\x05READY"
_TTL_SIZE = 2
_KIND = b"\x0bSocket-Type\x00\x00\x00\x06DEALER"

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + _NULL + bytes(32)


def pack(body: bytes, flags: int = 0) -> bytes:
    """One message of one part."""
    if len(body) > 255:
        return _LONG_HEADER.pack(flags | _LONG, len(body)) + body
    return bytes((flags, len(body))) + body


WELCOME = GREETING + pack(_READY + b"\x0bSocket-Type\x00\x00\x00\x06ROUTER", _COMMAND)


class Unreadable:
    """In place of a message: it had several parts, or was too long for who has not greeted."""


UNREADABLE = Unreadable()


class Reader:
    """Cuts a client's bytes into messages, holding at most one message beyond what was fed."""

    def __init__(self, max_message: int) -> None:
        """`max_message`: bytes; beyond, the connection is at fault."""
        self._limit = max_message
        self.longest = SHORT_MESSAGE  # that is kept; longer ones cannot be read
        self.answers: list[bytes] = []  # to be sent, by whoever reads
        self.is_ready = False  # the handshake is done
        self._greeted = False
        self._buffer = bytearray()
        self._start = 0  # of what is not read yet
        self._dropping = 0  # bytes of a frame's body that are still to come
        self._parts = self._parts_size = 0  # of the message that is being dropped
        self._flags = 0  # of the frame that is being dropped

    def feed(self, data: bytes) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    @property
    def unfinished(self) -> int:
        """Bytes that the message will have whose beginning alone is here; 0: it is a short one."""
        header = None if self._dropping or not self.is_ready else self._header()
        return header[1] if header and header[1] > SHORT_MESSAGE else 0

    def next(self) -> bytearray | Unreadable | None:
        """The next message; None until more is fed. Raises ProtocolError."""
        if not self._greeted and not self._read_greeting():
            return None
        while True:
            if self._dropping:
                if not self._drop():
                    return None
            else:
                header = self._header()
                if header is None:
                    return None
                flags, size, begin = header
                if flags & _COMMAND:
                    if not self._command(flags, size, begin):
                        return None
                    continue
                self._check(flags, size)
                if not (flags & _MORE or self._parts or size > self.longest):
                    return self._take(begin, size)
                self._start, self._flags, self._dropping = begin, flags, size
                self._count(size)
            if not self._dropping and not self._flags & _MORE:
                self._parts = self._parts_size = 0
                return UNREADABLE

    def _read_greeting(self) -> bool:
        head = self._buffer[:_GREETING_SIZE]
        if not _might_be_greeting(head):
            raise ProtocolError("no ZeroMQ client: its greeting is another")
        if len(head) < _GREETING_SIZE:
            return False
        self._greeted = True
        self._start = _GREETING_SIZE
        return True

    def _header(self) -> tuple[int, int, int] | None:
        """(flags, size of the body, where it begins) of the next frame, if that much is here."""
        here = len(self._buffer) - self._start
        if here < 2:
            return None
        flags, size = self._buffer[self._start], self._buffer[self._start + 1]
        if not flags & _LONG:
            return flags, size, self._start + 2
        if here < _LONG_HEADER.size:
            return None
        flags, size = _LONG_HEADER.unpack_from(self._buffer, self._start)
        return flags, size, self._start + _LONG_HEADER.size

    def _check(self, flags: int, size: int) -> None:
        if flags > _MORE | _LONG:
            raise ProtocolError(f"a frame with the flags {flags}")
        if not self.is_ready:
            raise ProtocolError("a message before the handshake")
        if size > self._limit:
            raise ProtocolError(f"a message of {size} bytes; the limit is {self._limit}")

    def _take(self, begin: int, size: int) -> bytearray | None:
        end = begin + size
        if len(self._buffer) < end:
            return None
        if end == len(self._buffer) and begin < size:  # most of it: moved, not copied
            message, self._buffer, self._start = self._buffer, bytearray(), 0
            del message[:begin]
            return message
        self._start = end
        return self._buffer[begin:end]

    def _drop(self) -> bool:
        """Whether the frame's body has all come."""
        here = min(self._dropping, len(self._buffer) - self._start)
        self._start += here
        self._dropping -= here
        return not self._dropping

    def _count(self, size: int) -> None:
        self._parts += 1
        self._parts_size += size
        if self._parts > MAX_PARTS or self._parts_size > self._limit:
            raise ProtocolError("a message whose parts do not end")

    def _command(self, flags: int, size: int, begin: int) -> bool:
        """Whether it was here as a whole, and is done."""
        if flags > _COMMAND | _LONG or size > MAX_COMMAND:
            raise ProtocolError(f"a command of {size} bytes with the flags {flags}")
        if len(self._buffer) < begin + size:
            return False
        body = bytes(self._buffer[begin : begin + size])
        self._start = begin + size
        if not self.is_ready:
            if not body.startswith(_READY) or _KIND not in body:
                raise ProtocolError("no DEALER: its handshake is another")
            self.is_ready = True
        elif body.startswith(_PING):
            self.answers.append(pack(_PONG + body[len(_PING) + _TTL_SIZE :], _COMMAND))
        return True


def _might_be_greeting(head: bytes) -> bool:
    """Whether it is one, as far as it has come."""
    fits = head[:1] in (b"", b"\xff") and head[9:10] in (b"", b"\x7f")
    version, mechanism = head[10:11], head[12:32]
    return fits and (not version or version >= b"\x03") and _NULL.startswith(mechanism)
