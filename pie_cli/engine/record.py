"""What is remembered of one process: its facts, the newest of what it said, how it ended.

Bounded, whatever the process says. Outlives the process (see processes.py). Knows no sockets.
"""

import heapq
from collections import deque
from collections.abc import Callable

from ipc import client as c

MAX_KEPT = 1 << 20  # units of `weight`, of messages and as much of output
MIN_KEPT = 64 << 10
KEPT_OF_ALL = 256 << 20  # shared by all live processes, as far as MIN_KEPT allows


def kept_each(num_processes: int) -> int:
    """How much is kept of each of so many processes, of messages and of output."""
    return max(MIN_KEPT, min(MAX_KEPT, KEPT_OF_ALL // (2 * max(1, num_processes))))


class Kept:
    """The newest events of one kind, up to a size."""

    def __init__(self) -> None:
        self.events: deque[c.Sent | c.Stored | c.Printed] = deque()
        self.size = 0
        self.num_missed = self.bytes_missed = 0

    def add(self, event: c.Sent | c.Stored | c.Printed, limit: int) -> None:
        self.events.append(event)
        self.size += _weight(event)
        while self.size > limit and len(self.events) > 1:
            self._drop()
        if self.size > limit and isinstance(event, c.Printed):  # the end of a long text counts
            self._drop()
            kept = c.Printed(event.process, event.time, event.stream, event.text[-limit // 2 :])
            self.bytes_missed -= len(kept.text.encode())
            self.events.append(kept)
            self.size = _weight(kept)

    def _drop(self) -> None:
        event = self.events.popleft()
        self.size -= _weight(event)
        self.num_missed += 1
        if isinstance(event, c.Printed):
            self.bytes_missed += len(event.text.encode())


class Record:
    """Made with the process; `terminal` is its last word, None while it lives."""

    def __init__(
        self, id: str, number: int, app: str, client: str, limit: Callable[[], int]
    ) -> None:
        """`limit`: how much may be kept, at any time."""
        self.id, self.number, self.app, self.client = id, number, app, client
        self.sandbox = ""
        self.launched_at = 0.0
        self.messages, self.output = Kept(), Kept()
        self.terminal: c.Returned | c.Error | None = None
        self._limit = limit

    @property
    def size(self) -> int:
        """What it holds, in units of `weight`."""
        value = self.terminal.value if isinstance(self.terminal, c.Returned) else ""
        return self.messages.size + self.output.size + c.weight(value)

    @property
    def exit(self) -> int:
        """The code that `pie run` ends with; 0 while it lives."""
        return self.terminal.exit if isinstance(self.terminal, c.Error) else 0

    @property
    def missed(self) -> int:
        """How many events are kept no more."""
        return self.messages.num_missed + self.output.num_missed

    def add(self, event: c.Sent | c.Stored | c.Printed) -> None:
        kept = self.output if isinstance(event, c.Printed) else self.messages
        kept.add(event, self._limit())

    def past(self) -> list[c.Sent | c.Stored | c.Printed]:
        """All that is kept, by time."""
        return list(
            heapq.merge(self.messages.events, self.output.events, key=lambda event: event.time)
        )

    def stored(self, number: int) -> c.Stored | None:
        """The file of that number, as long as it is kept in mind."""
        for event in self.messages.events:
            if isinstance(event, c.Stored) and event.number == number and not event.error:
                return event
        return None


def weight_of(event: c.FromHub) -> int:
    """What an event counts for a client that has not shown it yet."""
    return _weight(event) if isinstance(event, c.Sent | c.Printed | c.Stored) else 0


def _weight(event: c.Sent | c.Stored | c.Printed) -> int:
    return c.weight(event.path if isinstance(event, c.Stored) else event.text)
