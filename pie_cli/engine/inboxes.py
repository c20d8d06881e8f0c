"""The inbox of one process: messages that it has not been given yet. Knows no sockets.

Messages wait here until the app asks for the first time, and while its socket is full.
"""

from collections import deque

from ipc import messages as m

MAX_MESSAGES = 10_000
MAX_BYTES = 64 << 20


class Inbox:
    """Bounded FIFO that is closed once, for good."""

    def __init__(self) -> None:
        self._waiting: deque[m.Inbox] = deque()
        self._bytes = 0
        self.closed = False
        self._told_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: m.Inbox) -> bool:
        """Whether there was room."""
        size = len(message.text)
        if self.closed or len(self._waiting) >= MAX_MESSAGES or self._bytes + size > MAX_BYTES:
            return False
        self._waiting.append(message)
        self._bytes += size
        return True

    def close(self) -> None:
        """The client's end is closed: what waits is still delivered."""
        self.closed = True

    def next(self) -> m.Inbox | m.InboxClosed | None:
        """The oldest message, then InboxClosed once when closed, else None."""
        if self._waiting:
            message = self._waiting.popleft()
            self._bytes -= len(message.text)
            return message
        if self.closed and not self._told_closed:
            self._told_closed = True
            return m.InboxClosed()
        return None
