"""Peers of the clients' socket that no library would make, and more of them than there is room for.

The hub holds no more than before, talks on with others, and takes new clients.
"""

import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from pie_cli.engine.reports import resident_bytes
from tests.cli import zmtp_peer
from tests.cli.conftest import SECONDS, Engine, end_engine, make_home, wait_until
from tests.cli.hub_client import HubClient
from tests.cli.test_hostile_frames import ECHO, talk
from tests.cli.zmtp_peer import COMMAND, MORE, Peer, frame, header

DESCRIPTORS = 200  # of the hub: soon used up
MEMORY = 64 << 20  # bytes by which the hub may grow
HELLO = c.encode(c.Hello(PROTOCOL_VERSION, os.getpid(), "me"))


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(make_home(tmp_path_factory.mktemp("pie")), {"FAKE_WORKER": "silent"})
    app = engine.write("def main(): pass")
    starting = engine.start("run", app, preexec_fn=few_descriptors)
    assert starting.wait(SECONDS) == 0, starting.stderr.read()
    yield engine
    end_engine(engine)


@pytest.fixture
def path(attacked: Engine) -> Path:
    (path,) = attacked.home.glob("run/*/hub.sock")
    return path


@pytest.fixture
def client(attacked: Engine) -> Iterator[HubClient]:
    """Around each attack: a talk of others, what the hub holds, and a new client."""
    hub = attacked.card()["pid"]
    client = HubClient(attacked)
    echo = client.run(ECHO, name="echo")
    talk(client, echo, 20)
    memory = resident_bytes(hub)
    yield client
    talk(client, echo, 50)
    assert resident_bytes(hub) - memory < MEMORY
    other = HubClient(attacked)
    assert other.value_of(other.run("def main(input): return 1")) == "1"
    other.close()
    client.say(c.Kill((echo,)))
    client.end_of(echo)
    client.close()


@pytest.fixture(params=["greeted", "not_greeted"])
def peer(request: pytest.FixtureRequest, client: HubClient, path: Path) -> Iterator[Peer]:
    peer = Peer(path)
    if request.param == "greeted":
        peer.send(frame(HELLO))
        assert isinstance(c.decode_from_hub(peer.receive()[1]), c.Welcome)
    yield peer
    peer.sock.close()


@pytest.mark.parametrize("size", [0, 100, 1 << 20])
def test_a_message_whose_parts_never_end_is_cut_off(peer: Peer, size):
    part = frame(b"x" * size, MORE)
    many = part * (1 + (1 << 20) // len(part))
    for _ in range(1100):
        if not peer.send(many):
            return
    raise AssertionError("the hub takes it for ever")


def test_parts_of_one_message_are_dropped_as_they_come(peer: Peer, client: HubClient, attacked):
    hub = attacked.card()["pid"]
    before = resident_bytes(hub)
    for _ in range(200):
        assert peer.send(frame(bytes(1 << 20), MORE))
    talk(client, "echo", 10)
    assert resident_bytes(hub) - before < MEMORY
    peer.send(frame(b"end"))
    assert isinstance(c.decode_from_hub(peer.receive()[1]), c.EngineFailed)


def test_a_frame_beyond_the_limit_is_cut_off(peer: Peer):
    peer.send(header(1 << 62))
    with pytest.raises(ConnectionError):
        peer.receive()


def test_who_has_not_greeted_may_send_no_long_message(client: HubClient, path: Path, attacked):
    hub = attacked.card()["pid"]
    before = resident_bytes(hub)
    peer = Peer(path)
    size = 200 << 20
    peer.send(header(size))
    for _ in range(size >> 20):
        assert peer.send(bytes(1 << 20))
    assert isinstance(c.decode_from_hub(peer.receive()[1]), c.EngineFailed)
    assert resident_bytes(hub) - before < MEMORY
    peer.sock.close()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 100, os.urandom(4096), bytes(64),
        zmtp_peer.GREETING.replace(b"NULL", b"LAIN"),
        zmtp_peer.GREETING + zmtp_peer.ready(b"PUB"),
        zmtp_peer.GREETING + frame(HELLO),
        zmtp_peer.GREETING + frame(b"\x05ERROR\x03bad", COMMAND),
        zmtp_peer.GREETING + header(1 << 40, COMMAND),
        zmtp_peer.GREETING + zmtp_peer.ready() + bytes([0xF8, 0]),
        zmtp_peer.GREETING + zmtp_peer.ready() + header(1 << 20, COMMAND),
    ],
    ids=["http", "random", "zeros", "mechanism", "kind", "no_ready", "error", "long_command",
         "flags", "later_command"],
)  # fmt: skip
def test_what_is_no_zeromq_is_cut_off(client: HubClient, path: Path, said):
    made = zmtp_peer.connected(path)
    made.sendall(said)
    try:
        while made.recv(4096):  # its greeting
            pass
    except ConnectionResetError:
        pass
    made.close()


def test_a_peer_that_asks_whether_the_hub_lives_is_answered(client: HubClient, path: Path):
    peer = Peer(path)
    peer.send(frame(b"\x04PING\x00\x00abc", COMMAND))
    assert peer.receive() == (COMMAND, b"\x04PONGabc")
    peer.sock.close()


@pytest.mark.parametrize("said", [b"", zmtp_peer.GREETING[:11], zmtp_peer.GREETING])
def test_connections_without_a_handshake_take_no_room_of_others(client, attacked: Engine, path, said):
    """More than the hub has descriptors: the oldest go, and it does not spin meanwhile."""
    made: list[socket.socket] = []
    for _ in range(2 * DESCRIPTORS):
        made.append(zmtp_peer.connected(path))
        made[-1].sendall(said)
    talk(client, "echo", 20)
    other = HubClient(attacked)
    assert other.value_of(other.run("def main(input): return 2")) == "2"
    other.close()
    wait_until(lambda: is_at_rest(attacked.card()["pid"]))
    for each in made:
        each.close()


def test_clients_that_only_greet_leave_room_for_processes(client: HubClient, attacked: Engine, path):
    """As many as the hub takes: those in excess wait to be accepted, and launches go on."""
    made: list[socket.socket] = []
    for _ in range(DESCRIPTORS):
        made.append(zmtp_peer.connected(path))
        made[-1].sendall(zmtp_peer.GREETING + zmtp_peer.ready() + frame(HELLO))
    assert client.value_of(client.run("def main(input): return 3")) == "3"
    wait_until(lambda: is_at_rest(attacked.card()["pid"]))
    for each in made:
        each.close()


def is_at_rest(pid: int) -> bool:
    """Whether it does little for a while: what spins never does."""
    used = cpu_seconds(pid)
    time.sleep(0.5)
    return cpu_seconds(pid) - used < 0.25


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
