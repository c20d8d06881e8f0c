"""Answers ZeroMQ whether a key may connect (ZAP, RFC 27). Knows keys, no messages."""

import asyncio
import time
from collections.abc import Callable

import zmq
from zmq.utils import z85

from ipc.transport import DOMAIN
from pie_cli import keys
from pie_cli.engine.journal import Journal
from pie_cli.engine.zmq_reader import ZmqReader

LOOK_SECONDS = 1.0  # between two looks at the folder of keys
REPORT_SECONDS = 10.0  # between two lines about refused peers


class Keyring:
    """The keys that may connect; follows the folder."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self.names: dict[str, str] = {}  # public half -> name
        self._stamp = 0
        self.renew()
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._loop.call_later(LOOK_SECONDS, self._look)
        if self.renew():
            self._on_change()

    def renew(self) -> bool:
        """Read the folder if it has changed; whether the keys have."""
        try:
            stamp = keys.folder().stat().st_mtime_ns
        except OSError:
            stamp = 0
        if stamp == self._stamp:
            return False
        self._stamp, before = stamp, self.names
        self.names = keys.known()
        return before != self.names


class Refusals:
    """Counts peers that were turned away; a line in the log now and then, however many."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._counts: dict[str, int] = {}
        self._last = ""
        self._next = 0.0

    def add(self, reason: str, address: str = "") -> None:
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._last = address or self._last
        if time.monotonic() >= self._next:
            self.report()

    def report(self) -> None:
        """Say what has not been said."""
        if self._counts:
            self._journal.warning("refused", **self._counts, last=self._last or None)
            self._counts = {}
            self._next = time.monotonic() + REPORT_SECONDS


class Zap:
    """The handler of one context. The user id of a peer is the public half of its key."""

    def __init__(self, context: zmq.Context, keyring: Keyring, refusals: Refusals) -> None:
        self._keyring, self._refusals = keyring, refusals
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("inproc://zeromq.zap.01")
        self._reader = ZmqReader(self._socket.getsockopt(zmq.FD), self._receive)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _receive(self) -> bool:
        try:
            version, request, domain, address, _, mechanism, *credentials = (
                self._socket.recv_multipart(zmq.NOBLOCK)
            )
        except zmq.Again:
            return False
        public = ""
        if (domain, mechanism) == (DOMAIN, b"CURVE") and len(credentials[0]) == 32:
            public = z85.encode(credentials[0]).decode()
        if public not in self._keyring.names:
            self._keyring.renew()
        if public in self._keyring.names:
            answer = [b"200", b"OK", public.encode(), b""]
        else:
            self._refusals.add("keys", address.decode("ascii", "replace"))
            answer = [b"400", b"this key is not known", b"", b""]
        self._socket.send_multipart([version, request, *answer])
        self._reader.check()
        return True
