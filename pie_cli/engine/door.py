"""The door of an engine: a process of its own between clients on other machines and the hub.

Run as `python -m pie_cli.engine.door`. It takes connections, asks for their keys, and passes on
what each says over a connection to the hub of its own, where it greets as the key's client. So
nothing that comes from a network is read by the hub before its sender has shown a key; and memory,
descriptors and CPU time that strangers take are not the hub's.
"""

import argparse
import asyncio
import os
import resource
import signal

import zmq

from ipc import client as c
from ipc.errors import ProtocolError
from ipc.pieces import MAX_JOINED
from ipc.transport import guard_server, monitor, next_event
from pie_cli import keys
from pie_cli.engine.gate import Gate
from pie_cli.engine.guests import Guest, Outlet
from pie_cli.engine.journal import Journal
from pie_cli.engine.wire import Wire
from pie_cli.engine.zap import Keyring, Refusals, Zap
from pie_cli.engine.zmq_reader import ZmqReader

MAX_GUESTS = 256
MAX_STRANGERS = 256  # connections whose sender has not said a word yet
MAX_CONNECTIONS = 1024  # of strangers, guests, and those who were refused and stay
MAX_MEMORY = 4 << 30  # bytes of address space
MAX_DESCRIPTORS = 4096
CUT_SECONDS = 1.0  # in which a guest may hear why its connection ends
LOOK_SECONDS = 0.2  # between two looks at what guests have sent
MAX_PARTIAL = 2 * MAX_JOINED  # of all messages that are not complete


class Door:
    """Made inside a running loop."""

    def __init__(self, descriptor: int, address: str, hub: str, journal: Journal) -> None:
        self._gate, self._hub = Gate(descriptor), hub
        self._journal, self._refusals = journal, Refusals(journal)
        self._keyring = Keyring(self._drop_unknown)
        self._guests: dict[bytes, Guest] = {}
        self._by_descriptor: dict[int, Guest] = {}
        self._connections: set[int] = set()  # descriptors
        self._strangers: set[int] = set()
        self._context = zmq.Context()
        self._zap = Zap(self._context, self._keyring, self._refusals)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, 1000)
        guard_server(self._socket, keys.server_secret())
        self._monitor = monitor(self._socket)
        self._socket.setsockopt(zmq.USE_FD, descriptor)
        self._socket.bind(address)
        self._monitor_reader = ZmqReader(self._monitor.getsockopt(zmq.FD), self._watch)
        self._reader = ZmqReader(self._socket.getsockopt(zmq.FD), self._receive)
        self._outlet = Outlet(self._socket, self._reader.check, self._lose)
        self._loop = asyncio.get_running_loop()
        self._look_at_guests()

    async def close(self) -> None:
        """Pass on what the hub has said, and leave."""
        for guest in list(self._guests.values()):
            guest.drain()
        await self._outlet.close()
        for guest in list(self._guests.values()):
            self._part(guest)
        for reader in (self._reader, self._monitor_reader):
            reader.close()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()
        self._zap.close()
        self._refusals.report()
        await asyncio.to_thread(self._context.term)

    # ---- connections

    def _watch(self) -> bool:
        """One event of a connection. Those of one descriptor come in order."""
        event = next_event(self._monitor)
        if event is None:
            return False
        kind, value = event
        if kind == zmq.EVENT_ACCEPTED:
            self._connections.add(value)
            self._strangers.add(value)
        elif kind == zmq.EVENT_DISCONNECTED:
            self._connections.discard(value)
            if value in self._strangers:
                self._strangers.discard(value)
                self._refusals.add("connections")
            elif guest := self._by_descriptor.get(value):
                self._part(guest)
        self._limit()
        return True

    def _limit(self) -> None:
        """Beyond some, nobody may come until others have left."""
        strangers = len(self._strangers) / MAX_STRANGERS
        share = max(strangers, len(self._connections) / MAX_CONNECTIONS)
        if share >= 1:
            self._gate.close()
        elif share < 0.75:
            self._gate.open()

    def _drop_unknown(self) -> None:
        """A key was taken back."""
        for guest in list(self._guests.values()):
            if guest.public not in self._keyring.names:
                self._refuse(guest.identity, "the key was taken back")
                self._part(guest)

    # ---- from guests

    def _receive(self) -> bool:
        try:
            identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        guest = self._guests.get(identity.bytes)
        try:
            guest = guest or self._arrive(identity.bytes, frames[0])
            if len(frames) != 1:
                raise ProtocolError("a message of several frames")
            if guest:
                self._hear(guest, frames[0].bytes)
        except ProtocolError as error:
            self._refuse(identity.bytes, f"the engine cannot read this client: {error}")
            if guest:
                self._part(guest)
        return True

    def _arrive(self, identity: bytes, frame: zmq.Frame) -> Guest | None:
        """A guest for a connection that speaks for the first time."""
        while self._watch():  # its descriptor may have been another's before
            pass
        descriptor, public = frame.get(zmq.SRCFD), frame.get("User-Id")
        name = self._keyring.names.get(public)
        if descriptor not in self._strangers:  # gone already, or refused
            return None
        self._strangers.discard(descriptor)
        if name is None or len(self._guests) >= MAX_GUESTS:
            crowd = f"{MAX_GUESTS} clients are connected already"
            self._refuse(identity, crowd if name else "the key was taken back")
            self._loop.call_later(CUT_SECONDS, Wire(descriptor).cut)
            return None
        self._limit()
        guest = Guest(self._context, self._hub, self._outlet, identity, public, descriptor)
        self._guests[identity] = self._by_descriptor[descriptor] = guest
        self._journal.info("guest", key=name, address=frame.get("Peer-Address"))
        return guest

    def _hear(self, guest: Guest, piece: bytes) -> None:
        message = guest.hear(piece)
        if message is None:
            self._bound_partial(guest)
            return
        said = c.decode_from_client(message)
        if isinstance(said, c.Leave):
            self._part(guest)
        elif isinstance(said, c.Hello):
            client = keys.client_name(self._keyring.names[guest.public])
            guest.greet(c.Hello(said.protocol, os.getpid(), client, remote=True))
        elif guest.has_greeted:
            guest.pass_on(message)

    def _bound_partial(self, guest: Guest) -> None:
        """Beyond the bound of all unfinished messages the largest ends, whoever has added to it."""
        if sum(each.joiner.size for each in self._guests.values()) <= MAX_PARTIAL:
            return
        largest = max(self._guests.values(), key=lambda each: each.joiner.size)
        reason = "too much is under way, and most of it for this one"
        if largest is guest:
            raise ProtocolError(reason)
        self._refuse(largest.identity, reason)
        self._part(largest)

    def _part(self, guest: Guest) -> None:
        """It is gone, or has to go."""
        if self._guests.pop(guest.identity, None) is guest:
            self._by_descriptor.pop(guest.descriptor, None)
            guest.close()
            if guest.descriptor in self._connections:
                self._loop.call_later(CUT_SECONDS, guest.wire.cut)

    def _look_at_guests(self) -> None:
        self._loop.call_later(LOOK_SECONDS, self._look_at_guests)
        for guest in list(self._guests.values()):
            if guest.is_flooding():
                guest.wire.cut()
                self._lose(guest.identity, "it sends a message without end")

    # ---- to guests

    def _refuse(self, identity: bytes, reason: str) -> None:
        self._outlet.send(identity, c.encode(c.EngineFailed(reason)))

    def _lose(self, identity: bytes, reason: str) -> None:
        if guest := self._guests.get(identity):
            key = self._keyring.names.get(guest.public)
            self._journal.warning("guest-lost", key=key, reason=reason)
            self._part(guest)


async def serve(door_options: argparse.Namespace) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, lambda: ended.done() or ended.set_result(None))
    journal = Journal(door_options.log)
    door = Door(door_options.descriptor, door_options.address, door_options.hub, journal)
    await ended
    await door.close()


def limit_this_process() -> None:
    """Strangers may take that much of the machine, and no more."""
    for kind, most in ((resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_NOFILE, MAX_DESCRIPTORS)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pie_cli.engine.door", description=__doc__)
    parser.add_argument("--descriptor", type=int, required=True, help="a socket that listens")
    parser.add_argument("--address", required=True, help="where it listens")
    parser.add_argument("--hub", required=True, help="the hub's address")
    parser.add_argument("--log", required=True)
    options = parser.parse_args(arguments)
    limit_this_process()
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
