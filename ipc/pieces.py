"""Messages in pieces, for links whose other end is not trusted with large frames.

A piece is one byte, 1 when more of the message follows and else 0, and then a part of the message.
So a frame is small whatever a message holds, and a peer that has not shown its key yet can make
nobody keep more than one piece.
"""

from collections.abc import Iterator

from ipc.errors import ProtocolError

PIECE = 256 << 10  # bytes of a message in one piece
MAX_FRAME = PIECE + 1024  # with what encryption adds
MAX_JOINED = 272 << 20  # of a message: an app's attached files, and what else a launch has


def cut(message: bytes) -> Iterator[bytes]:
    """The pieces of a message, at least one."""
    last = max(len(message) - 1, 0) // PIECE * PIECE
    view = memoryview(message)
    for start in range(0, last, PIECE):
        yield b"\x01" + view[start : start + PIECE]
    yield b"\x00" + view[last:]


class Joiner:
    """Puts the pieces of one sender together again."""

    def __init__(self, limit: int = MAX_JOINED) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.size = 0  # of the message that is not complete

    def add(self, piece: bytes) -> bytes | None:
        """The message, once this piece ends it. Raises ProtocolError."""
        if piece[:1] not in (b"\x00", b"\x01") or len(piece) > PIECE + 1:
            raise ProtocolError("a frame that is no piece of a message")
        if self.size + len(piece) - 1 > self._limit:
            raise ProtocolError(f"a message of more than {self._limit >> 20} MiB")
        if piece[0] == 0 and not self._parts:
            return piece[1:]
        self._parts.append(piece[1:])
        self.size += len(piece) - 1
        if piece[0]:
            return None
        message = b"".join(self._parts)
        self._parts, self.size = [], 0
        return message
