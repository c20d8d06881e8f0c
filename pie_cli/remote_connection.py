"""A client's connection to an engine on another machine. Files that its apps send come over it."""

import errno
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import zmq

from ipc import client as c
from ipc import transport
from ipc.pieces import Joiner, cut
from pie_cli import addresses, cards
from pie_cli.connection import Connection, EngineLost
from pie_cli.downloads import Downloads
from pie_cli.keys import require_curve
from pie_cli.remote import Remote

LINGER_MS = 2000
_REFUSED = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: (
        "the engine at {} does not know this key",
        "`pie key list` there says which it knows",
    ),
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: (
        "{} is no engine, or another than the key is for",
        "`pie key new NAME` makes a key where the engine runs",
    ),
}
_REFUSED[zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL] = _REFUSED[zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL]


class RemoteConnection(Connection):
    """Encrypted. Never made anew: what was launched over it ends with it, unless detached."""

    when_silent = ""

    def __init__(self, remote: Remote) -> None:
        """Raises EngineLost when nobody answers, or refuses the key."""
        require_curve()
        self._remote = remote
        self.card = cards.Card(0, 0, "", "", 0)
        try:
            address = addresses.resolved(remote.address)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise EngineLost(f"cannot find {remote.address}: {reason}") from None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        key = remote.key
        transport.guard_client(self._socket, key.server, key.public, key.secret)
        self._monitor = transport.monitor(self._socket)
        self._joiner = Joiner(c.MAX_MESSAGE)
        self._has_ended = False
        self._downloads = Downloads(self._send)
        self._ready: deque[c.FromHub] = deque()
        try:
            self._socket.connect(address)
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def greet(self, client: str | None = None) -> c.Welcome:
        """The key says for whom this speaks."""
        hint = "install the same version of pie here and there"
        welcome = self._introduce(self._remote.key.name, hint)
        self.card = cards.Card(0, 0, welcome.model, "", welcome.protocol)
        return welcome

    def send(self, message: c.FromClient) -> None:
        self._send(self._downloads.sent(message))

    def receive(self) -> c.FromHub | None:
        while not self._ready:
            try:
                whole = self._joiner.add(self._socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return None
            if whole is not None:
                self._ready += self._downloads.received(c.decode_from_hub(whole))
        return self._ready.popleft()

    def wait(self, seconds: float | None, descriptors: Iterable[int] = ()) -> set[int]:
        poller = zmq.Poller()
        for item in (self._socket, self._monitor, *descriptors):
            poller.register(item, zmq.POLLIN)
        ready = poller.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        return {item for item, _ in ready if isinstance(item, int)}

    def engine_ended(self) -> bool:
        while (event := transport.next_event(self._monitor)) is not None:
            self._has_ended |= event[0] in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED)
        return self._has_ended

    def lost(self, message: str = "", hint: str = "") -> EngineLost:
        words = message or f"the engine at {self._remote.address} has ended, or is out of reach"
        return EngineLost(words, hint)

    def close(self) -> None:
        with suppress(zmq.ZMQError):
            if not self._has_ended:
                self._send(c.Leave())
        self._downloads.close()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()
        self._context.term()

    def _send(self, message: c.FromClient) -> None:
        for piece in cut(c.encode(message)):
            self._socket.send(piece)

    def _shake_hands(self) -> None:
        address, deadline = self._remote.address, time.monotonic() + transport.PATIENCE_MS / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._monitor.poll(int(left * 1000) + 1)
            event, value = transport.next_event(self._monitor) or (0, 0)
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return
            if event in _REFUSED and value != errno.EAGAIN:  # that is silence
                self._has_ended = True
                words, hint = _REFUSED[event]
                raise EngineLost(words.format(address), hint)
            if event in (zmq.EVENT_CLOSED, zmq.EVENT_DISCONNECTED):
                break
        self._has_ended = True
        hint = "`pie serve --listen` there says where it listens"
        raise EngineLost(f"no engine answers at {address}", hint)
