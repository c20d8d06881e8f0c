"""A client's connection to an engine. Sends and receives; decides nothing and prints nothing."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress

import zmq

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from pie_cli import cards, stopped
from pie_cli.settings import EngineFolder

WELCOME_SECONDS = 30.0
LOOK_SECONDS = 3.0  # of silence, after which it is seen whether the engine is stopped

OnWait = Callable[[str], None]


class EngineLost(Exception):
    """The engine failed, ended, or could not start. `log`: what it wrote until then."""

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message)
        self.hint, self.log = hint, log


class EngineLeft(EngineLost):
    """The engine was leaving before it greeted: another one can be started."""


class Connection(ABC):
    """One client of one engine."""

    card: cards.Card  # of an engine elsewhere: what is known of it
    welcome: c.Welcome | None = None
    when_silent = "`pie stop` ends it"  # what to do about an engine that does not answer

    @abstractmethod
    def greet(self, client: str | None = None) -> c.Welcome:
        """Introduce this process, and the client that it speaks for: by default the user's.

        Raises EngineLeft or EngineLost.
        """

    @abstractmethod
    def send(self, message: c.FromClient) -> None: ...

    @abstractmethod
    def receive(self) -> c.FromHub | None:
        """The next message; None when there is none now."""

    @abstractmethod
    def wait(self, seconds: float | None, descriptors: Iterable[int] = ()) -> set[int]:
        """Wait for a message, the engine's end, or a descriptor; those that are readable."""

    @abstractmethod
    def engine_ended(self) -> bool: ...

    @abstractmethod
    def close(self) -> None: ...

    def lost(self, message: str = "", hint: str = "") -> EngineLost:
        """The error for an engine that is gone."""
        return EngineLost(message or "the engine ended unexpectedly", hint, self.card.log)

    def expect(self, kind: type | tuple[type, ...], seconds: float) -> c.FromHub:
        """The next message of a kind, others dropped. Raises EngineLost, also after `seconds`."""
        quiet = time.monotonic()
        deadline = quiet + seconds
        while True:
            ended = self.engine_ended()  # before reading: its last words come first
            message = self.receive()
            if isinstance(message, kind):
                return message
            if isinstance(message, c.EngineFailed):
                raise self.lost(message.message, message.hint)
            if message is not None:
                quiet = time.monotonic()
                continue
            if ended:
                raise self.lost()
            if time.monotonic() >= quiet + LOOK_SECONDS:
                deadline = self._deadline(deadline)
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.lost(*self._silence())
            self.wait(min(left, LOOK_SECONDS))

    def stopped(self) -> dict[int, str]:
        """Process and name of those parts of the engine that are stopped, as far as is known."""
        return {}

    def _silence(self) -> tuple[str, str]:
        """What to say of an engine that does not answer, and what to do about it."""
        if parts := self.stopped():
            why, hint = stopped.told(parts)
            return f"the engine does not answer: {why}", hint
        return "the engine does not answer", self.when_silent

    def _deadline(self, before: float) -> float:
        """Until when to wait on, after some silence."""
        return before

    def _introduce(self, user: str, other_version: str) -> c.Welcome:
        """Greet; `other_version` says what to do about an engine of another one."""
        self.send(c.Hello(PROTOCOL_VERSION, os.getpid(), user))
        answer = self.expect(c.Welcome, WELCOME_SECONDS)
        if answer.protocol != PROTOCOL_VERSION:
            raise self.lost("an engine of another version is running", other_version)
        self.welcome = answer
        return answer


class LocalConnection(Connection):
    """To an engine of this user on this machine."""

    def __init__(
        self, folder: EngineFolder, card: cards.Card, on_wait: OnWait | None = None
    ) -> None:
        """Raises EngineLeft when the engine is gone. `on_wait`: is told of a stopped engine, and
        waits until it goes on."""
        self.card = card
        self._on_wait, self._has_told = on_wait, False
        try:
            self._pidfd = os.pidfd_open(card.pid)
        except OSError:
            raise EngineLeft("the engine has left") from None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 100)
        self._socket.setsockopt(zmq.MAXMSGSIZE, c.MAX_MESSAGE)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(folder.hub_address)

    def greet(self, client: str | None = None) -> c.Welcome:
        hint = "`pie stop` ends it, and the next run starts one of this version"
        try:
            return self._introduce(client or user_name(), hint)
        except EngineLost as error:
            if self.engine_ended():
                raise EngineLeft(str(error), error.hint, error.log) from None
            raise

    def stopped(self) -> dict[int, str]:
        return stopped.stopped_parts(self.card.pid)

    def _deadline(self, before: float) -> float:
        now = time.monotonic()
        if not stopped.is_stopped(self.card.pid):
            return before
        if self._on_wait is None:
            return now  # it would not answer in any time
        if not self._has_told:
            self._has_told = True
            self._on_wait("; ".join(self._silence()))
        return max(before, now + WELCOME_SECONDS)

    def send(self, message: c.FromClient) -> None:
        self._socket.send(c.encode(message))

    def receive(self) -> c.FromHub | None:
        try:
            return c.decode_from_hub(self._socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def wait(self, seconds: float | None, descriptors: Iterable[int] = ()) -> set[int]:
        poller = zmq.Poller()
        for item in (self._socket, self._pidfd, *descriptors):
            poller.register(item, zmq.POLLIN)
        ready = poller.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        return {item for item, _ in ready if isinstance(item, int)} - {self._pidfd}

    def engine_ended(self) -> bool:
        poller = zmq.Poller()
        poller.register(self._pidfd, zmq.POLLIN)
        return bool(poller.poll(0))

    def wait_end(self, seconds: float) -> bool:
        """Whether the engine's process ends within `seconds`."""
        poller = zmq.Poller()
        poller.register(self._pidfd, zmq.POLLIN)
        return bool(poller.poll(int(seconds * 1000)))

    def close(self) -> None:
        with suppress(zmq.ZMQError):
            self._socket.send(c.encode(c.Leave()), zmq.NOBLOCK)
        self._socket.close()
        self._context.term()
        with suppress(OSError):
            os.close(self._pidfd)


def connect(
    folder: EngineFolder,
    even_silent: bool = False,
    client: str | None = None,
    on_wait: OnWait | None = None,
) -> LocalConnection | None:
    """A greeted connection to the engine of a folder; None when none runs there.

    An engine that does not greet is an EngineLost, unless the connection is wanted even so, or
    `on_wait` is told that it is stopped.
    """
    card = cards.read(folder)
    if card is None:
        return None
    connection = None
    try:
        connection = LocalConnection(folder, card, on_wait)
        if even_silent and stopped.is_stopped(card.pid):
            connection.send(c.Hello(PROTOCOL_VERSION, os.getpid(), client or user_name()))
        else:
            connection.greet(client)
        return connection
    except EngineLeft:
        if connection:
            connection.close()
        return None
    except EngineLost:
        if not even_silent:
            connection.close()
            raise
        return connection


def user_name() -> str:
    """The user whose client this is: one client for the engine, whatever the command."""
    return os.environ.get("USER") or str(os.getuid())
