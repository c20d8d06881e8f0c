"""Clients on other machines, as the door sees them: a connection to the hub for each."""

import asyncio
from collections import deque
from collections.abc import Callable

import zmq

from ipc import client as c
from ipc.pieces import Joiner, cut
from pie_cli.engine.wire import Wire
from pie_cli.engine.zmq_reader import ZmqReader

RETRY_SECONDS = 0.002
CLOSE_SECONDS = 1.0
FRAME_EXTRA = 64  # what a frame has beyond its piece, at most
MAX_PENDING = 64 << 20  # bytes: ZeroMQ keeps fewer than half of that when frames are complete
MAX_KEPT = 64 << 20  # bytes for one guest, beyond what ZeroMQ keeps


class Outlet:
    """Sends to guests. One that takes nothing for long loses its connection, and nobody waits."""

    def __init__(
        self, socket: zmq.Socket, after_send: Callable[[], None],
        on_failure: Callable[[bytes, str], None],
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._socket, self._after_send, self._on_failure = socket, after_send, on_failure
        self._kept: dict[bytes, deque[bytes]] = {}
        self._sizes: dict[bytes, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def send(self, identity: bytes, message: bytes) -> None:
        kept = self._kept.get(identity)
        for piece in cut(message):
            if kept is None and self._send(identity, piece):
                continue
            kept = self._kept.setdefault(identity, deque())
            kept.append(piece)
            self._sizes[identity] = self._sizes.get(identity, 0) + len(piece)
        if self._sizes.get(identity, 0) > MAX_KEPT:
            self.forget(identity)
            self._on_failure(identity, "it does not read")
        elif kept and self._timer is None:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._retry)

    def forget(self, identity: bytes) -> None:
        self._kept.pop(identity, None)
        self._sizes.pop(identity, None)

    async def close(self) -> None:
        """Send what is kept, as far as it is taken soon."""
        deadline = self._loop.time() + CLOSE_SECONDS
        while self._kept and self._loop.time() < deadline:
            await asyncio.sleep(RETRY_SECONDS)
        if self._timer:
            self._timer.cancel()

    def _send(self, identity: bytes, piece: bytes) -> bool:
        """Whether it was taken, or is for nobody."""
        try:
            self._socket.send_multipart([identity, piece], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:  # gone: its end is told by the monitor
            return True
        finally:
            self._after_send()
        return True

    def _retry(self) -> None:
        self._timer = None
        for identity, kept in list(self._kept.items()):
            while kept and self._send(identity, kept[0]):
                self._sizes[identity] -= len(kept.popleft())
            if not kept:
                self.forget(identity)
        if self._kept:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._retry)


class Guest:
    """One connection of a client, and its connection to the hub."""

    def __init__(
        self, context: zmq.Context, hub: str, outlet: Outlet, identity: bytes, public: str,
        descriptor: int,
    ) -> None:  # fmt: skip
        """`descriptor`: of the connection, in this process."""
        self.identity, self.public, self.descriptor = identity, public, descriptor
        self.wire = Wire(descriptor)
        self._heard = 0  # bytes, at least
        self.joiner = Joiner()
        self.has_greeted = False
        self._outlet = outlet
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.setsockopt(zmq.MAXMSGSIZE, c.MAX_MESSAGE)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(hub)
        self._reader = ZmqReader(self._socket.getsockopt(zmq.FD), self._receive)

    def hear(self, piece: bytes) -> bytes | None:
        """A message, once it is complete. Raises ProtocolError."""
        self._heard += len(piece) + FRAME_EXTRA
        return self.joiner.add(piece)

    def is_flooding(self) -> bool:
        """Whether much more has come from it than ZeroMQ has told of."""
        received = self.wire.received()
        self._heard = min(self._heard, received)  # else it would have room for later
        return received - self._heard > MAX_PENDING

    def greet(self, hello: c.Hello) -> None:
        self.has_greeted = True
        self.pass_on(c.encode(hello))

    def pass_on(self, message: bytes) -> None:
        """To the hub."""
        self._socket.send(message)
        self._reader.check()

    def drain(self) -> None:
        """Pass on all that the hub has said."""
        while self._receive():
            pass

    def close(self) -> None:
        """The hub is told that it is gone."""
        if self.has_greeted:
            self._socket.send(c.encode(c.Leave()))
        self._reader.close()
        self._socket.close()
        self._outlet.forget(self.identity)

    def _receive(self) -> bool:
        try:
            message = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._outlet.send(self.identity, message)
        return not self._socket.closed  # the guest may have been lost by that
