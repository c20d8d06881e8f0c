"""The socket that clients connect to: accepts them, reads and writes their messages. Knows no words.

Whoever does not speak ZeroMQ, or breaks a bound, is cut off. Nobody is waited for.
"""

import asyncio
import errno
import os
import resource
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ipc import client as c
from ipc import zmtp
from ipc.errors import ProtocolError
from pie_cli.engine.shares import Share

GREETING_SECONDS = 30.0  # in which a connection must have introduced itself
MAX_STRANGERS = 1024  # connections that have not: beyond, the oldest goes
ACCEPTS_AT_ONCE = 32
RETRY_SECONDS = 0.1  # after which one more connection may be accepted
BACKLOG = 4096
DESCRIPTORS_EACH = 4  # of this process: a quarter of them may be connections
READ_SIZE = 64 << 10
LONG_READ_SIZE = 1 << 20
MESSAGES_AT_ONCE = 64  # in one turn of the loop
MAX_UNSENT = 64 << 20  # bytes that wait for one client, above which it is not read
LAST_SECONDS = 1.0  # in which clients may take what was sent, at the end
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Message = bytearray | zmtp.Unreadable


class ClientSocket:
    """One connection. `introduced` is for its owner to set."""

    def __init__(self, listener: "Listener", sock: socket.socket) -> None:
        self._listener, self._sock = listener, sock
        self._loop = asyncio.get_running_loop()
        self._reader = zmtp.Reader(c.MAX_MESSAGE)
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._is_deaf = False  # it is gone, though its end was not read yet
        self._more_soon = False  # messages that were read, and have not had their turn
        self._is_scheduled = False  # their turn
        self._waits_for_share = False
        self._timer = self._loop.call_later(GREETING_SECONDS, self.close)
        self._is_read = False
        self.write(zmtp.WELCOME)
        self._read_or_wait()

    @property
    def is_closed(self) -> bool:
        return self._sock.fileno() < 0

    def introduced(self) -> None:
        """It has said who it is: it may send long messages, and stay."""
        self._timer.cancel()
        self._reader.longest = c.MAX_MESSAGE
        self._listener.strangers.pop(self, None)

    def send(self, message: bytes) -> None:
        """Send, or keep what the client does not take now."""
        data = zmtp.pack(message)
        if (gathered := self._listener.gathered) is None:
            self.write(data)
        else:
            gathered.setdefault(self, []).append(data)

    def write(self, data: bytes) -> None:
        if self.is_closed or self._is_deaf:
            return
        rest = memoryview(data)
        if not self._unsent:
            rest = rest[self._send(rest) :]
            if not rest:
                return
            self._loop.add_writer(self._sock, self._writable)
        self._unsent.append(rest)
        self._unsent_size += len(rest)
        self._read_or_wait()

    def close(self) -> None:
        if self.is_closed:
            return
        self._timer.cancel()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._unsent.clear()
        self._listener.forget(self)

    def finish(self, deadline: float) -> None:
        """Write what is kept, if the client takes it in time, and close."""
        while not self.is_closed and self._unsent:
            if not select.select([], [self._sock], [], max(0.0, deadline - time.monotonic()))[1]:
                break
            self._writable()
        self.close()

    def _send(self, data: memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # gone: reading tells it
            self._is_deaf = True
            return len(data)

    def _writable(self) -> None:
        while self._unsent:
            sent = self._send(self._unsent[0])
            if self._is_deaf:
                self._unsent.clear()
                self._unsent_size = 0
                continue
            self._unsent_size -= sent
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
                break
            self._unsent.popleft()
        else:
            self._loop.remove_writer(self._sock)
        self._go_on()
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self.is_closed:
            return
        waits = self._more_soon or self._waits_for_share or self._unsent_size > MAX_UNSENT
        if self._is_read and waits:
            self._loop.remove_reader(self._sock)
        elif not self._is_read and not waits:
            self._loop.add_reader(self._sock, self._readable)
        self._is_read = not waits

    def _readable(self) -> None:
        try:
            data = self._sock.recv(LONG_READ_SIZE if self._reader.unfinished else READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._reader.feed(data)
        self._take_messages()

    def _take_messages(self) -> None:
        self._more_soon = self._is_scheduled = False
        if self.is_closed:
            return
        try:
            for _ in range(MESSAGES_AT_ONCE):
                if self._unsent_size > MAX_UNSENT:
                    self._more_soon = True
                    break
                message = self._reader.next()
                if message is None:
                    break
                self._listener.on_message(self, message)
                if self.is_closed:
                    return
            else:
                self._more_soon = True
        except ProtocolError:
            self.close()
            return
        except Exception:  # a fault of ours: the client learns that it gets no answer
            self.close()
            raise
        if answers := self._reader.answers:
            self.write(b"".join(answers))
            answers.clear()
        self._go_on()
        self._ask_for_share()
        self._read_or_wait()

    def _go_on(self) -> None:
        """The rest of what was read has its turn, once the client takes its answers."""
        if self._more_soon and not self._is_scheduled and self._unsent_size <= MAX_UNSENT:
            self._is_scheduled = True
            self._loop.call_soon(self._take_messages)

    def _ask_for_share(self) -> None:
        """A long message is read further once there is memory for it."""
        size = self._reader.unfinished
        share = self._listener.share
        self._waits_for_share = not share.ask(self, size, self._has_share, self.close)

    def _has_share(self) -> None:
        self._waits_for_share = False
        self._read_or_wait()


class Listener:
    """Accepts connections until `close`."""

    def __init__(
        self,
        path: str,
        on_message: Callable[[ClientSocket, Message], None],
        on_close: Callable[[ClientSocket], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.on_message, self._on_close = on_message, on_close
        self.share = Share(c.MAX_MESSAGE)
        self.gathered: dict[ClientSocket, list[bytes]] | None = None  # to be written together
        self.strangers: dict[ClientSocket, None] = {}  # the oldest first
        self._all: set[ClientSocket] = set()
        self._retry: asyncio.TimerHandle | None = None
        with suppress(FileNotFoundError):  # of an engine that was killed; we hold its lock
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen(BACKLOG)
        self._sock.setblocking(False)
        self._loop.add_reader(self._sock, self._accept)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent meanwhile is written at the end: to each client at once, in its order."""
        gathered = self.gathered = {}
        try:
            yield
        finally:
            self.gathered = None
            for connection, messages in gathered.items():
                connection.write(b"".join(messages))

    def forget(self, connection: ClientSocket) -> None:
        self.strangers.pop(connection, None)
        self._all.discard(connection)
        self.share.give(connection)
        self._on_close(connection)

    def close(self) -> None:
        """Deliver what was sent, and close."""
        if self._retry:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        deadline = time.monotonic() + LAST_SECONDS
        for connection in list(self._all):
            connection.finish(deadline)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if not self._has_room():
                return
            try:
                made, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _FULL:
                    continue  # that one is gone already
                if not self._drop_oldest_stranger():
                    self._wait()
                return
            made.setblocking(False)
            connection = ClientSocket(self, made)
            self._all.add(connection)
            self.strangers[connection] = None

    def _has_room(self) -> bool:
        """For one more connection, if need be in place of a stranger's."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // DESCRIPTORS_EACH
        if len(self._all) >= most or len(self.strangers) >= MAX_STRANGERS:
            if not self._drop_oldest_stranger():
                self._wait()
                return False
        return True

    def _drop_oldest_stranger(self) -> bool:
        for connection in self.strangers:
            connection.close()
            return True
        return False

    def _wait(self) -> None:
        """Accept nobody for a moment: the rest waits in the kernel."""
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(
            RETRY_SECONDS, self._loop.add_reader, self._sock, self._accept
        )
