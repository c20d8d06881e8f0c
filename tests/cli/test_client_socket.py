"""What is sent to clients together: written once, whole and in order."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ipc import zmtp
from pie_cli.engine import client_socket
from pie_cli.engine.client_socket import ClientSocket, Listener

Pair = tuple[Listener, ClientSocket, socket.socket]


def with_client(test: Callable[[Pair], None]) -> Callable[[Path], None]:
    """The test, with a listener, a connection to it and the client's end."""

    async def run(path: str) -> None:
        listener = Listener(path, lambda *_: None, lambda *_: None)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(path)
            while not listener._all:
                await asyncio.sleep(0.001)
            peer.setblocking(False)
            assert peer.recv(1000) == zmtp.WELCOME
            (connection,) = listener._all
            test((listener, connection, peer))
            connection.close()
        listener.close()

    def run_test(tmp_path: Path) -> None:
        asyncio.run(run(str(tmp_path / "sock")))

    return run_test


def packed(*messages: bytes) -> bytes:
    return b"".join(map(zmtp.pack, messages))


@with_client
def test_messages_that_are_sent_together_leave_together(pair: Pair):
    listener, connection, peer = pair
    with listener.together():
        for message in (b"a", b"b" * 300, b"c"):
            connection.send(message)
        with pytest.raises(BlockingIOError):
            peer.recv(1)
    connection.send(b"d")
    assert peer.recv(1000) == packed(b"a", b"b" * 300, b"c", b"d")


@with_client
def test_what_was_sent_before_a_fault_still_leaves(pair: Pair):
    listener, connection, peer = pair
    with pytest.raises(ValueError), listener.together():
        connection.send(b"a")
        raise ValueError
    connection.send(b"b")
    assert peer.recv(1000) == packed(b"a", b"b")


@with_client
def test_a_client_that_goes_meanwhile_misses_it(pair: Pair):
    listener, connection, peer = pair
    with listener.together():
        connection.send(b"a")
        connection.close()
    assert peer.recv(1000) == b""


@with_client
def test_what_waits_for_a_client_that_is_gone_is_dropped_at_once(pair: Pair):
    """Not piece by piece: there may be a million, and everybody waits."""
    _, connection, peer = pair
    for _ in range(1000):
        connection.send(bytes(4 << 10))
    assert connection._unsent
    peer.close()
    attempts, send = [], connection._send
    connection._send = lambda data: attempts.append(1) or send(data)
    connection._writable()
    connection.send(b"more")
    assert len(attempts) == 1 and not connection._unsent and not connection._unsent_size


def test_requests_whose_answers_nobody_takes_wait(tmp_path: Path, monkeypatch):
    """However many came in one read: a few bytes may ask for a megabyte each."""
    monkeypatch.setattr(client_socket, "MAX_UNSENT", 1 << 20)
    most, count, answer = [], 500, bytes(100_000)

    def reply(connection: ClientSocket, message: bytes) -> None:
        connection.send(answer if message == b"ask" else b"")
        most.append(connection._unsent_size)

    async def scenario() -> None:
        listener = Listener(str(tmp_path / "sock"), reply, lambda *_: None)
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(tmp_path / "sock"))
            peer.setblocking(False)
            ready = zmtp.pack(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER", 4)
            await loop.sock_sendall(peer, zmtp.GREETING + ready + packed(*[b"ask"] * count))
            while not most:
                await asyncio.sleep(0.001)
            for _ in range(100):
                await asyncio.sleep(0)
            assert max(most) < 1_500_000 and len(most) < count
            left = len(zmtp.WELCOME) + count * len(zmtp.pack(answer))
            while left:
                left -= len(await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 60))
        listener.close()

    asyncio.run(scenario())
    assert len(most) == count and max(most) < 1_500_000


@with_client
def test_a_message_that_the_engine_fails_at_ends_the_connection(pair: Pair):
    listener, connection, peer = pair

    def fails(connection: ClientSocket, message: bytes) -> None:
        raise ZeroDivisionError

    listener.on_message = fails
    ready = zmtp.pack(zmtp._READY + zmtp._KIND, zmtp._COMMAND)
    peer.send(zmtp.GREETING + ready + packed(b"a", b"b"))
    with pytest.raises(ZeroDivisionError):
        connection._readable()
    assert connection.is_closed and not listener._all
