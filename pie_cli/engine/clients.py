"""The clients of one engine: who is connected, and that they still live. Runs nothing for them."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

import zmq

from ipc import client as c
from ipc.errors import ProtocolError
from pie_cli.engine.zmq_reader import ZmqReader

OnMessage = Callable[["Client", c.FromClient], None]


class Client:
    """One connection of a client's process."""

    def __init__(self, identity: bytes, user: str, pid: int, pidfd: int) -> None:
        self.identity, self.user, self.pid, self.pidfd = identity, user, pid, pidfd


class Clients:
    """The ROUTER that clients connect to, and a pidfd for each of them."""

    def __init__(
        self, address: str, on_message: OnMessage, on_gone: Callable[[Client], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message, self._on_gone = on_message, on_gone
        self._known: dict[bytes, Client] = {}
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, c.MAX_MESSAGE)
        self._socket.setsockopt(zmq.LINGER, 1000)
        # A message that the kernel cannot take is kept, never dropped.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(address)
        self._reader = ZmqReader(self._socket.getsockopt(zmq.FD), self._receive)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, client: Client) -> bool:
        return self._known.get(client.identity) is client

    def send(self, client: Client, message: c.FromHub) -> bool:
        """Send; False when the client is gone, and misses it."""
        if client not in self:
            return False
        self._send(client.identity, message)
        return True

    def broadcast(self, message: c.FromHub) -> None:
        for identity in self._known:
            self._send(identity, message)

    def close(self) -> None:
        """Deliver what was sent, and close."""
        for client in list(self._known.values()):
            self._forget(client)
        self._reader.close()
        self._socket.close()
        self._context.term()

    def _send(self, identity: bytes, message: c.FromHub) -> None:
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([identity, c.encode(message)], zmq.NOBLOCK)
        self._reader.check()

    def _receive(self) -> bool:
        try:
            identity, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            message = c.decode_from_client(parts[0] if len(parts) == 1 else b"")
        except ProtocolError as error:
            self._send(identity, c.EngineFailed(f"the engine cannot read this client: {error}"))
            return True
        if isinstance(message, c.Hello):
            self._greet(identity, message)
        elif client := self._known.get(identity):
            if isinstance(message, c.Leave):
                self._gone(client)
            else:
                self._on_message(client, message)
        return True

    def _greet(self, identity: bytes, hello: c.Hello) -> None:
        try:
            pidfd = os.pidfd_open(hello.pid)
        except OSError as error:
            text = f"the engine cannot watch the client's process {hello.pid}: {error.strerror}"
            self._send(identity, c.EngineFailed(text, "both must see the same process numbers"))
            return
        if known := self._known.get(identity):  # it greets again
            self._gone(known)
        client = self._known[identity] = Client(identity, hello.user, hello.pid, pidfd)
        self._loop.add_reader(pidfd, self._gone, client)
        self._on_message(client, hello)

    def _gone(self, client: Client) -> None:
        self._forget(client)
        self._on_gone(client)

    def _forget(self, client: Client) -> None:
        del self._known[client.identity]
        self._loop.remove_reader(client.pidfd)
        os.close(client.pidfd)
