"""The clients of one engine: who is connected, and that they still live. Runs nothing for them."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from ipc import client as c
from ipc import zmtp
from ipc.errors import ProtocolError
from pie_cli.engine.client_socket import ClientSocket, Listener, Message

MAX_APP = 255  # characters of an app's name from elsewhere

OnMessage = Callable[["Client", c.FromClient], None]


class Client:
    """One connection of a client's process; of the door, when the client is on another machine."""

    def __init__(self, socket: ClientSocket, hello: c.Hello, pidfd: int) -> None:
        self.socket, self.pidfd = socket, pidfd
        self.user, self.pid, self.is_remote = hello.user, hello.pid, hello.remote

    def may_see(self, owner: str) -> bool:
        """Whether the processes of the client `owner` exist for it: all do for this user's."""
        return not self.is_remote or owner == self.user

    def own(self, run: c.Run, files_folder: str) -> c.Run:
        """The launch that this client may have: a remote one neither names a client nor a folder,
        shares no cached pages with others, and its app's name can be shown on any terminal."""
        if not self.is_remote:
            return run
        app = "".join(x if x.isprintable() else "\ufffd" for x in run.app[:MAX_APP])
        return msgspec.structs.replace(
            run, app=app, client=None, files_folder=f"{files_folder}/{self.user}",
            salt=f"{self.user} {run.salt}",
        )  # fmt: skip


class Clients:
    """The socket that clients connect to, and a pidfd for each of them."""

    def __init__(
        self, address: str, on_message: OnMessage, on_gone: Callable[[Client], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message, self._on_gone = on_message, on_gone
        self._known: dict[ClientSocket, Client] = {}
        self._listener = Listener(address.removeprefix("ipc://"), self._receive, self._closed)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, client: Client) -> bool:
        return self._known.get(client.socket) is client

    def send(self, client: Client, message: c.FromHub) -> bool:
        """Send; False when the client is gone, and misses it."""
        if client not in self:
            return False
        client.socket.send(c.encode(message))
        return True

    def together(self) -> AbstractContextManager[None]:
        """What is sent meanwhile is written at the end: one system call for each client."""
        return self._listener.together()

    def broadcast(self, message: c.FromHub) -> None:
        data = c.encode(message)
        for socket in list(self._known):
            socket.send(data)

    def close(self) -> None:
        """Deliver what was sent, and close."""
        for client in list(self._known.values()):
            self._forget(client)
        self._listener.close()

    def _receive(self, socket: ClientSocket, data: Message) -> None:
        try:
            message = c.decode_from_client(b"" if data is zmtp.UNREADABLE else data)
        except ProtocolError as error:
            text = f"the engine cannot read this client: {error}"
            socket.send(c.encode(c.EngineFailed(text)))
            return
        if isinstance(message, c.Hello):
            self._greet(socket, message)
        elif client := self._known.get(socket):
            if isinstance(message, c.Leave):
                self._gone(client)
            else:
                self._on_message(client, message)

    def _closed(self, socket: ClientSocket) -> None:
        if client := self._known.get(socket):
            self._gone(client)

    def _greet(self, socket: ClientSocket, hello: c.Hello) -> None:
        try:
            pidfd = os.pidfd_open(hello.pid)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", error)
            text = f"the engine cannot watch the client's process {hello.pid}: {reason}"
            hint = "both must see the same process numbers"
            socket.send(c.encode(c.EngineFailed(text, hint)))
            return
        if known := self._known.get(socket):  # it greets again
            self._gone(known)
        client = self._known[socket] = Client(socket, hello, pidfd)
        self._loop.add_reader(pidfd, self._gone, client)
        socket.introduced()
        self._on_message(client, hello)

    def _gone(self, client: Client) -> None:
        self._forget(client)
        self._on_gone(client)

    def _forget(self, client: Client) -> None:
        del self._known[client.socket]
        self._loop.remove_reader(client.pidfd)
        os.close(client.pidfd)
