"""The door of an engine that listens: strangers and bad guests cost nothing noticeable."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from ipc import client as c
from ipc import pieces, transport
from ipc.errors import ProtocolError
from ipc.pieces import MAX_FRAME
from pie_cli import keys
from pie_cli.engine import door
from pie_cli.engine.reports import cpu_seconds, resident_bytes
from tests.cli.conftest import ROOT, SECONDS, is_gone, wait_until
from tests.cli.curve_peer import MORE, CurvePeer
from tests.cli.listening import ListeningEngine
from tests.cli.test_listen import ECHO

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
HELLO = "inferlets/hello.py"


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    engine = ListeningEngine(tmp_path_factory.mktemp("door"), "laptop", "phone")
    yield engine
    code, stderr = engine.end()
    assert code == 0, stderr


@pytest.fixture(autouse=True)
def still_serves(listening):
    """After each test the same door, or its successor, serves."""
    yield
    done = listening.guest("laptop").pie("run", HELLO)
    assert (done.returncode, done.stdout) == (0, '{"hello": "world"}\n'), done.stderr


def stranger(engine: ListeningEngine, *sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", engine.port), SECONDS)
    for data in sent:
        connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the door has hung up; waits for it."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


# ---- who gets in


def test_a_key_that_the_engine_does_not_know_is_refused(listening, tmp_path):
    key = keys.read(listening.key("laptop"))
    own = dict(zip(("public", "secret"), transport.new_pair(), strict=True))
    path = tmp_path / "own.key"
    keys.save(path, keys._toml({"name": "laptop", "server": key.server, **own}))
    done = listening.guest("stranger", path).pie("ps")
    assert done.returncode == 3 and "does not know this key" in done.stderr
    wait_until(lambda: "refused keys=" in listening.log())


def test_a_key_for_another_engine_is_refused(listening, tmp_path):
    key = keys.read(listening.key("laptop"))
    other = transport.new_pair()[0]
    facts = {"name": "laptop", "server": other, "public": key.public, "secret": key.secret}
    path = tmp_path / "other.key"
    keys.save(path, keys._toml(facts))
    done = listening.guest("lost", path).pie("ps")
    assert done.returncode == 3 and "or another than the key is for" in done.stderr


def test_a_server_that_does_not_hold_the_engines_key_is_not_talked_to(tmp_path, listening):
    """An impostor with a pair of its own, in the engine's place."""
    context = zmq.Context()
    impostor = context.socket(zmq.ROUTER)
    impostor.setsockopt(zmq.CURVE_SERVER, 1)
    impostor.setsockopt(zmq.CURVE_SECRETKEY, transport.new_pair()[1].encode())
    port = impostor.bind_to_random_port("tcp://127.0.0.1")
    guest = listening.guest("laptop")
    done = guest.pie("--engine", f"tcp://127.0.0.1:{port}", "run", HELLO)
    assert done.returncode == 3 and "or another than the key is for" in done.stderr
    assert not impostor.poll(0)
    impostor.close(0)
    context.term()


def test_plain_zeromq_gets_no_word_through(listening):
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 0)
    peer.setsockopt(zmq.RECONNECT_IVL, -1)
    monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    peer.connect(listening.address)
    peer.send(b"\x00" + c.encode(c.Hello(1, os.getpid(), "me")))
    assert monitor.poll(SECONDS * 1000)
    assert struct.unpack("=Hi", monitor.recv_multipart()[0])[0] == zmq.EVENT_DISCONNECTED
    peer.disable_monitor()
    monitor.close(0)
    peer.close()
    context.term()


def test_a_key_that_is_taken_back_loses_its_connections_and_processes(listening):
    listening.add_key("guest")
    guest = listening.guest("guest")
    command = guest.start("run", guest.write(ECHO), "--no-stdin")
    assert command.stderr.readline() == "printed\n"
    assert listening.here.pie("key", "remove", "guest").returncode == 0
    _, stderr = command.communicate(timeout=SECONDS)
    assert command.returncode == 3 and "the key was taken back" in stderr
    wait_until(lambda: not listening.here.processes())
    done = guest.pie("ps")
    assert done.returncode == 3 and "does not know this key" in done.stderr


def test_a_new_key_counts_at_once(listening):
    listening.add_key("new")
    assert listening.guest("new").pie("ps").returncode == 0


# ---- strangers


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
        os.urandom(1 << 16),
        GREETING + b"\x06" + (MAX_FRAME + 1).to_bytes(8, "big"),  # a command that is too large
        GREETING + b"\x06" + (1 << 62).to_bytes(8, "big"),
        GREETING + b"\x04\x05\x05READY",
        b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32),
    ],
    ids=["http", "noise", "large", "huge", "ready", "null"],
)
def test_garbage_is_hung_up_on(listening, sent):
    with closing(stranger(listening, sent)) as connection:
        assert is_closed(connection)


@pytest.mark.parametrize("sent", [b"", b"\xff", GREETING], ids=["silent", "a byte", "greeting"])
def test_a_connection_that_shows_no_key_is_hung_up_on(listening, sent):
    with closing(stranger(listening, sent)) as connection:
        assert is_closed(connection)


def test_a_crowd_of_strangers_costs_little_and_is_served_out(listening):
    pid = listening.door()
    hub, memory = cpu_seconds(listening.server.pid), resident_bytes(pid)
    crowd = [stranger(listening) for _ in range(door.MAX_STRANGERS)]
    large = GREETING + b"\x06" + MAX_FRAME.to_bytes(8, "big") + bytes(MAX_FRAME // 2)
    for connection in crowd:
        connection.setblocking(False)
        try:
            connection.send(large)
        except OSError:
            pass
    here = listening.here.pie("run", HELLO)
    assert here.returncode == 0
    for _ in range(200):  # they are kept waiting
        crowd.append(socket.socket())
        crowd[-1].setblocking(False)
        crowd[-1].connect_ex(("127.0.0.1", listening.port))
    assert resident_bytes(pid) - memory < 2 * door.MAX_STRANGERS * MAX_FRAME
    assert len(os.listdir(f"/proc/{pid}/fd")) < door.MAX_STRANGERS + 150
    there = listening.guest("laptop").pie("run", HELLO)
    assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
    for connection in crowd:
        connection.close()
    assert listening.door() == pid
    # Generous: what the hub itself does for two runs is much of it.
    assert cpu_seconds(listening.server.pid) - hub < 3.0


def test_refusals_are_a_few_lines_of_the_log(listening):
    before = listening.log().count(" refused ")
    for _ in range(300):
        stranger(listening, b"x" * 100).close()
    assert listening.log().count(" refused ") - before <= 3


# ---- guests that are at fault


def raw(listening: ListeningEngine, name: str = "phone") -> tuple[zmq.Context, zmq.Socket]:
    """A socket with a key that speaks as it likes."""
    key, context = keys.read(listening.key(name)), zmq.Context()
    peer = context.socket(zmq.DEALER)
    transport.guard_client(peer, key.server, key.public, key.secret)
    peer.setsockopt(zmq.LINGER, 0)
    peer.setsockopt(zmq.MAXMSGSIZE, -1)
    peer.connect(listening.address)
    return context, peer


@pytest.mark.parametrize(
    "message",
    [
        [b""],
        [b"\x02"],
        [b"\x00"],
        [b"\x00garbage"],
        [b"\x00a", b"\x00b"],
        [b"\x00" + b"\x91" * 5000],
    ],
    ids=["empty", "flag", "nothing", "garbage", "two frames", "deep"],
)
def test_a_guest_that_cannot_be_read_is_told_so_and_gone(listening, message):
    context, peer = raw(listening)
    peer.send_multipart(message)
    assert peer.poll(SECONDS * 1000)
    answer = c.decode_from_hub(peer.recv()[1:])
    assert isinstance(answer, c.EngineFailed) and "cannot read" in answer.message
    monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    peer.send(b"\x00" + c.encode(c.Hello(1, 1, "me")))
    peer.send(b"\x00" + c.encode(c.List()))
    assert monitor.poll(SECONDS * 1000) and not peer.poll(0)
    peer.disable_monitor()
    monitor.close(0)
    peer.close()
    context.term()


def test_a_message_without_end_ends_its_connection_and_fills_no_memory(listening):
    pid, before = listening.door(), resident_bytes(listening.door())
    peer = CurvePeer(listening.port, keys.read(listening.key("phone")))
    peer.sock.sendall(peer.message(b"\x00" + c.encode(c.Hello(1, 1, "me"))))
    assert peer.sock.recv(1)
    peak, part = before, bytes(200_000)
    with pytest.raises(ConnectionError):
        for _ in range(10_000):  # 2 GB
            peer.sock.sendall(peer.message(part, MORE))
            peak = max(peak, resident_bytes(pid))
    assert peak - before < 1 << 30
    assert listening.door() == pid
    wait_until(lambda: 'reason="it sends a message without end"' in listening.log())
    peer.sock.close()


class Sender:
    """A guest, as far as its messages go."""

    def __init__(self, identity: bytes) -> None:
        self.identity, self.joiner = identity, pieces.Joiner()

    def hear(self, piece: bytes) -> bytes | None:
        return self.joiner.add(piece)


def test_when_unfinished_messages_take_too_much_the_largest_ends_and_not_who_comes_last(
    monkeypatch,
):
    monkeypatch.setattr(door, "MAX_PARTIAL", 1000)
    hog, other, guest = (Sender(name) for name in (b"hog", b"other", b"guest"))
    tested = object.__new__(door.Door)
    tested._guests = {each.identity: each for each in (hog, other, guest)}
    refused = []
    monkeypatch.setattr(tested, "_refuse", lambda identity, reason: refused.append(reason))
    monkeypatch.setattr(tested, "_part", lambda guest: tested._guests.pop(guest.identity))
    for sender, size in ((hog, 600), (other, 390), (guest, 20), (guest, 20)):
        tested._hear(sender, b"\x01" + bytes(size))
    assert set(tested._guests) == {b"other", b"guest"}
    assert len(refused) == 1 and "too much" in refused[0]
    with pytest.raises(ProtocolError, match="too much"):
        tested._hear(other, b"\x01" + bytes(600))


def test_a_frame_that_is_too_large_ends_its_connection(listening):
    context, peer = raw(listening)
    monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    peer.send(b"\x00" + bytes(2 * MAX_FRAME))
    assert monitor.poll(SECONDS * 1000)
    peer.disable_monitor()
    monitor.close(0)
    peer.close()
    context.term()


def test_what_comes_before_a_greeting_is_not_heard(listening):
    context, peer = raw(listening)
    peer.send(b"\x00" + c.encode(c.List()))
    assert not peer.poll(300)
    peer.close()
    context.term()


def test_a_guest_that_falls_silent_is_gone_after_a_while_and_holds_nobody_up(listening):
    """A process that is stopped keeps its connection open, reads nothing, and has no heartbeat."""
    id = listening.guest("phone").run(ECHO, "--detach").stdout.strip()
    source = (
        "import asyncio\nfrom inferlet import session\n"
        "async def main():\n"
        "    for _ in range(100):\n"
        "        session.send('x' * 1_000_000)\n"
        "        await asyncio.sleep(0)\n"
    )
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from pie_cli import keys, remote
from pie_cli.remote_connection import RemoteConnection
from ipc import client as c
key = keys.read(Path({str(listening.key("phone"))!r}))
pie = RemoteConnection(remote.Remote({listening.address!r}, key))
pie.greet()
for number in range(40):
    pie.send(c.Run(number, "a.py", {source!r}, {{}}, "{{}}", {{}}))
pie.expect(c.Launched, 30)
print("launched", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
    silent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert silent.stdout.readline() == "launched\n"
        assert listening.guest("laptop").pie("run", HELLO).returncode == 0
        deadline = time.monotonic() + transport.SILENCE_MS / 1000 + SECONDS
        while [row["id"] for row in listening.here.processes()] != [id]:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    finally:
        silent.kill()
        silent.communicate()
        listening.here.pie("kill", id)


# ---- the door's own end


def test_a_door_that_is_killed_is_followed_by_another_and_the_engine_goes_on(listening):
    id = listening.here.run(ECHO, "--detach").stdout.strip()
    laptop = listening.guest("laptop")
    command = laptop.start("run", laptop.write(ECHO), "--no-stdin")
    assert command.stderr.readline() == "printed\n"
    pid = listening.door()
    os.kill(pid, signal.SIGKILL)
    _, stderr = command.communicate(timeout=SECONDS)
    assert command.returncode == 3 and "has ended, or is out of reach" in stderr
    wait_until(lambda: [row["id"] for row in listening.here.processes()] == [id])
    assert is_gone(pid) and listening.door() != pid
    assert laptop.pie("run", HELLO).returncode == 0
    listening.here.pie("kill", id)


def test_the_door_holds_nothing_of_the_hubs(listening):
    """It inherits the socket that listens, and no other descriptor."""
    pid, kinds = listening.door(), []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            kinds.append(os.readlink(path))
        except FileNotFoundError:
            continue
    assert not [kind for kind in kinds if kind.endswith(".lock") or "/lock" in kind]
