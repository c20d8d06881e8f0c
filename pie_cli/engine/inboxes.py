"""The inbox of one process: messages that its app has not received yet. Knows no sockets.

Messages wait here until the app asks for the first time, and while it has enough to go on with:

    waiting  ->  given (to the process, some at a time)  ->  received (by the app, and forgotten)

Both that wait and that are given count as in the inbox.
"""

from collections import deque
from typing import Generic, TypeVar

from ipc import messages as m
from ipc.errors import ProtocolError

MAX_MESSAGES = 10_000
MAX_BYTES = 64 << 20
GIVEN_MESSAGES = 256  # at once to a process
GIVEN_BYTES = 1 << 20

Sender = TypeVar("Sender")


class Inbox(Generic[Sender]):
    """Bounded FIFO that its client closes once, for good; others may still put messages."""

    def __init__(self, max_messages: int = MAX_MESSAGES) -> None:
        self.max_messages = max_messages
        self._waiting: deque[tuple[m.Inbox, int, Sender | None]] = deque()
        self._given: deque[tuple[int, Sender | None]] = deque()
        self._bytes = self._given_bytes = 0
        self._closed = False
        self._told_closed = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._given)

    def put(
        self, message: m.Inbox, sender: Sender | None = None, *, even_full: bool = False
    ) -> bool:
        """Whether there was room, or none was needed."""
        size = text_size(message.text)
        is_full = len(self) >= self.max_messages or self._bytes + size > MAX_BYTES
        if is_full and not even_full:
            return False
        self._waiting.append((message, size, sender))
        self._bytes += size
        return True

    @property
    def is_closed(self) -> bool:
        """Whether its client has said that nothing more comes."""
        return self._closed

    def close(self) -> None:
        """The client's end is closed: what waits is still delivered."""
        self._closed = True

    def next(self) -> m.Inbox | m.InboxClosed | None:
        """The next to be given; InboxClosed once when closed and none waits; else None."""
        if not self._waiting:
            if self._closed and not self._told_closed:
                self._told_closed = True
                return m.InboxClosed()
            return None
        if len(self._given) >= GIVEN_MESSAGES or self._given_bytes >= GIVEN_BYTES:
            return None
        message, size, sender = self._waiting.popleft()
        self._given.append((size, sender))
        self._given_bytes += size
        return message

    def received(self, count: int) -> list[Sender]:
        """The app has so many more: their senders, where known, each as often as it sent."""
        if not 0 < count <= len(self._given):
            raise ProtocolError(f"{count} messages received, of {len(self._given)} given")
        senders = []
        for _ in range(count):
            size, sender = self._given.popleft()
            self._bytes -= size
            self._given_bytes -= size
            if sender is not None:
                senders.append(sender)
        return senders


def text_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
