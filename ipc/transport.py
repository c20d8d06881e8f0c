"""The link between hub and worker: one ZeroMQ message carries all processes' batches.

    part 0     msgpack of (controls or reports, process numbers)
    part 1..n  one encoded batch (codec.encode_commands / encode_events) for each number, in order

The in-process pair has the same interface. Both count messages: a wave costs one each way.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import zmq

from ipc import codec
from ipc import messages as m

_down = codec.make_decoder(tuple[list[m.Control], list[int]])
_up = codec.make_decoder(tuple[list[m.WorkerReport], list[int]])

Batches = Sequence[tuple[int, bytes]]
MAX_MESSAGE = 1 << 30


class Link(Protocol):
    """One end of the link."""

    sent: int
    received: int

    def send(self, notices: Sequence, batches: Batches) -> None: ...

    def receive(self) -> tuple[list, list[tuple[int, bytes]]] | None:
        """The next message, or None when there is none: never waits."""

    def wait(self, timeout: float | None) -> bool:
        """Whether a message is there within `timeout` seconds (None: for ever)."""

    def close(self) -> None: ...


class ZmqLink:
    """A Link over ZeroMQ. The hub binds, the worker connects; both are trusted."""

    def __init__(self, address: str, *, bind: bool, is_hub: bool) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.PAIR)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        (self.socket.bind if bind else self.socket.connect)(address)
        self._decoder = _up if is_hub else _down
        self.sent = self.received = 0

    @property
    def fileno(self) -> int:
        """Readable when a message *may* be there (edge-triggered: drain with receive())."""
        return self.socket.getsockopt(zmq.FD)

    def send(self, notices: Sequence, batches: Batches) -> None:
        numbers = [number for number, _ in batches]
        header = codec.encode((list(notices), numbers))
        self.socket.send_multipart([header, *(body for _, body in batches)])
        self.sent += 1

    def receive(self) -> tuple[list, list[tuple[int, bytes]]] | None:
        try:
            header, *bodies = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self.received += 1
        notices, numbers = codec.decode(self._decoder, header)
        return notices, list(zip(numbers, bodies, strict=True))

    def wait(self, timeout: float | None) -> bool:
        return bool(self.socket.poll(None if timeout is None else int(timeout * 1000)))

    def close(self) -> None:
        self.socket.close()
        self._context.term()


class LocalLink:
    """One end of an in-process link; messages are encoded and decoded as on the wire."""

    def __init__(self, inbox: deque, outbox: deque, is_hub: bool) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._decoder = _up if is_hub else _down
        self.sent = self.received = 0

    def send(self, notices: Sequence, batches: Batches) -> None:
        numbers = [number for number, _ in batches]
        self._outbox.append((codec.encode((list(notices), numbers)), [body for _, body in batches]))
        self.sent += 1

    def receive(self) -> tuple[list, list[tuple[int, bytes]]] | None:
        if not self._inbox:
            return None
        header, bodies = self._inbox.popleft()
        self.received += 1
        notices, numbers = codec.decode(self._decoder, header)
        return notices, list(zip(numbers, bodies, strict=True))

    def wait(self, timeout: float | None) -> bool:
        return bool(self._inbox)

    def close(self) -> None:
        self._outbox.clear()


def local_pair() -> tuple[LocalLink, LocalLink]:
    """(hub end, worker end)."""
    up, down = deque(), deque()
    return LocalLink(up, down, True), LocalLink(down, up, False)
