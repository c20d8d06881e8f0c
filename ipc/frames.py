"""Length-prefixed frames on a stream descriptor. Knows sizes, not contents.

    frame = u32 little-endian length of (kind + body) | kind: 1 byte | body

kind ENGINE: a list of commands (up) or events (down) that the hub relays unread.
kind HUB: one message between the inferlet and the hub.
"""

import struct
from collections.abc import Iterator

from ipc.errors import ProtocolError

ENGINE = 0
HUB = 1
# From an inferlet. One command travels in one frame: the SDK refuses what is larger before it is
# sent. A mask of 8192 rows and slots has 64 MiB.
MAX_FRAME = 128 << 20
MAX_HUB_FRAME = 16 << 20  # the same for what the hub itself decodes
MAX_LAUNCH_FRAME = 1 << 30  # to an inferlet: trusted, holds the attached files

LONG_FRAME = 64 << 10  # bytes; what of shorter ones has come in part counts little
_HEADER = struct.Struct("<IB")


def pack(kind: int, body: bytes) -> bytes:
    """One frame. The caller keeps `body` below the reader's cap."""
    return _HEADER.pack(len(body) + 1, kind) + body


class FrameReader:
    """Cuts a byte stream into frames, holding at most one frame beyond what was fed."""

    def __init__(self, max_frame: int = MAX_FRAME, max_hub_frame: int = MAX_HUB_FRAME) -> None:
        self._limits = {ENGINE: max_frame, HUB: min(max_frame, max_hub_frame)}
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """Bytes of the frame whose beginning is here, if it is a long one; else 0."""
        if len(self._buffer) < _HEADER.size:
            return 0
        length, _ = _HEADER.unpack_from(self._buffer)
        return length if length > LONG_FRAME else 0

    @property
    def missing(self) -> int:
        """Bytes until that long frame ends; 0 when there is none."""
        return self.unfinished + 4 - len(self._buffer) if self.unfinished else 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(kind, body) of every frame that `data` completes. ProtocolError on an illegal header."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER.size:
                length, kind = _HEADER.unpack_from(buffer, start)
                self._check(length, kind)
                end = start + 4 + length
                if len(buffer) < end:
                    break
                body = bytes(memoryview(buffer)[start + _HEADER.size : end])
                start = end
                yield kind, body
        finally:
            del buffer[:start]

    def _check(self, length: int, kind: int) -> None:
        limit = self._limits.get(kind)
        if limit is None:
            raise ProtocolError(f"frame of unknown kind {kind}")
        if not 1 <= length <= limit:
            raise ProtocolError(f"frame of {length} bytes; the limit is {limit}")
