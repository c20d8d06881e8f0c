"""The link between hub and worker: one ZeroMQ message carries all processes' batches.

    part 0     msgpack of (controls or reports, process numbers)
    part 1..n  one encoded batch (codec.encode_commands / encode_events) for each number, in order

The in-process pair has the same interface. Both count messages: a wave costs one each way.

Also what makes a ZeroMQ socket fit for a network: keys (CURVE), small frames, heartbeats.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import zmq

from ipc import codec
from ipc import messages as m
from ipc.errors import ProtocolError
from ipc.pieces import MAX_FRAME

_down = codec.make_decoder(tuple[list[m.Control], list[int]])
_up = codec.make_decoder(tuple[list[m.WorkerReport], list[int]])

Batches = Sequence[tuple[int, bytes]]
MAX_MESSAGE = 1 << 30
TELL_BYTES = 4 << 20  # after which the worker tells that it has read them


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
        self._is_hub = is_hub
        self._num_sent = self._num_read = self._num_told = 0  # bytes
        self.expected_peer: int | None = None  # the process whose first message is waited for

    @property
    def fileno(self) -> int:
        """Readable when a message *may* be there (edge-triggered: drain with receive())."""
        return self.socket.getsockopt(zmq.FD)

    def send(self, notices: Sequence, batches: Batches) -> None:
        numbers = [number for number, _ in batches]
        header = codec.encode((list(notices), numbers))
        parts = [header, *(body for _, body in batches)]
        self.socket.send_multipart(parts)
        self._num_sent += sum(map(len, parts))
        self.sent += 1

    @property
    def unread(self) -> int:
        """Of the hub's: bytes that the worker has not read, as far as it has told."""
        return self._num_sent - self._num_told

    def receive(self) -> tuple[list, list[tuple[int, bytes]]] | None:
        """Raises ProtocolError."""
        try:
            if self.expected_peer is not None:
                return self._receive_first()
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return self._decode(parts)

    def _receive_first(self) -> tuple[list, list[tuple[int, bytes]]]:
        """Nothing, until the expected process speaks: from then on no other can."""
        frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        if _pid_of(frames[0]) not in (None, self.expected_peer):
            return [], []
        self.expected_peer = None
        return self._decode([frame.bytes for frame in frames])

    def _decode(self, parts: list[bytes]) -> tuple[list, list[tuple[int, bytes]]]:
        self.received += 1
        notices, numbers = codec.decode(self._decoder, parts[0])
        if len(numbers) != len(parts) - 1:
            raise ProtocolError(f"{len(parts) - 1} parts for {len(numbers)} processes")
        if self._is_hub:
            self._num_told = max(
                [self._num_told, *(n.num_bytes for n in notices if isinstance(n, m.LinkRead))]
            )
            notices = [notice for notice in notices if not isinstance(notice, m.LinkRead)]
        else:
            self._tell_read(sum(map(len, parts)))
        return notices, list(zip(numbers, parts[1:]))

    def _tell_read(self, size: int) -> None:
        """Now and then, so that the hub knows how much lies between."""
        self._num_read += size
        if self._num_read - self._num_told >= TELL_BYTES:
            self._num_told = self._num_read
            self.socket.send(codec.encode(([m.LinkRead(self._num_read)], [])))

    def wait(self, timeout: float | None) -> bool:
        return bool(self.socket.poll(None if timeout is None else int(timeout * 1000)))

    def close(self) -> None:
        self.socket.close()
        self._context.term()


def _pid_of(frame: zmq.Frame) -> int | None:
    """The process that sent it, as the kernel says; None where that is not on this machine."""
    try:
        host, *_, pid = frame.get("Peer-Address").split(":")
    except (zmq.ZMQError, KeyError, ValueError):
        return None
    return int(pid) if host == "localhost" and pid.isdigit() else None


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


# ---- over a network

DOMAIN = b"pie"  # of the questions whether a key may connect
HANDSHAKE_MS = 5_000  # in which a client has shown its key
PATIENCE_MS = 20_000  # in which a server takes a connection: others may crowd it
HEARTBEAT_MS = 5_000
SILENCE_MS = 20_000  # after which a peer is gone
MAX_WAITING = 100  # frames to one peer, or from it, that ZeroMQ keeps
CONNECTION_EVENTS = (
    zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
    | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)  # fmt: skip
_event = struct.Struct("=Hi")


def has_keys() -> bool:
    """Whether this ZeroMQ knows keys at all."""
    return bool(zmq.has("curve"))


def new_pair() -> tuple[str, str]:
    """(public, secret) of a new key."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def guard_server(socket: zmq.Socket, secret: str) -> None:
    """Nobody gets past the handshake without a key, which the context's ZAP handler is asked of."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret.encode())
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.SNDHWM, MAX_WAITING)
    socket.setsockopt(zmq.RCVHWM, MAX_WAITING)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    _guard(socket)


def guard_client(socket: zmq.Socket, server: str, public: str, secret: str) -> None:
    """Nobody but the holder of the server's key is talked to. A lost connection stays lost."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret.encode())
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, PATIENCE_MS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, PATIENCE_MS)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    _guard(socket)


def _guard(socket: zmq.Socket) -> None:
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, SILENCE_MS)


def monitor(socket: zmq.Socket) -> zmq.Socket:
    """Tells what becomes of the socket's connections: see `next_event`."""
    return socket.get_monitor_socket(CONNECTION_EVENTS)


def next_event(monitor: zmq.Socket) -> tuple[int, int] | None:
    """(event, its value: the connection's descriptor or an error); None when there is none now."""
    try:
        return _event.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0][: _event.size])
    except zmq.Again:
        return None
