"""What no honest peer sends, on an inferlet's own descriptor and on the clients' socket.

The offender ends, or is ignored. The hub holds no more than before, and others talk on.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ipc import client as c
from pie_cli.engine.reports import resident_bytes
from pie_cli.sandbox import policy
from tests.cli.conftest import Engine, end_engine, make_home, wait_until
from tests.cli.hub_client import HubClient
from tests.sandbox.slices import slice_of

MEMORY = 64 << 20  # bytes by which the hub may grow during an attack
ECHO = """
from inferlet import session
async def main(input):
    while (message := await session.receive()) != "end":
        session.send(message)
"""
HEAD = """
import asyncio, os, socket, struct
from inferlet import session
from inferlet.runtime import handles
from ipc import codec, frames
from ipc import messages as m

def channel():
    made = socket.socket(fileno=os.dup(handles.current().outbox._write.__self__._fd))
    made.setblocking(True)
    return made

def said(message):
    return frames.pack(frames.HUB, codec.encode(message))

async def main(input):
    session.send("here")
    await session.receive()
"""
ILLEGAL = {
    "a frame of 4 GiB": r"struct.pack('<IB', 0xFFFFFFFF, 1)",
    "a frame of 16 MiB and a byte": r"struct.pack('<IB', (16 << 20) + 2, 1)",
    "an empty frame": r"struct.pack('<IB', 0, 1)",
    "an unknown kind": r"struct.pack('<IB', 1, 7)",
    "garbage": r"frames.pack(1, bytes(range(256)) * 40)",
    "random bytes": r"b'\x05\x00\x00\x00\x01' + os.urandom(100_000)",
    "lists a million deep": r"frames.pack(1, b'\x91' * 1_000_000 + b'\x00')",
    "maps a thousand deep": r"frames.pack(1, b'\x81\x00' * 1000)",
    "a list that claims 4 billion items": r"frames.pack(1, b'\xdd\xff\xff\xff\xff')",
    "a text that claims 4 GiB": r"frames.pack(1, b'\x93\x01\xc2\xdb\xff\xff\xff\xff')",
    "no message": r"frames.pack(1, codec.encode('text'))",
    "a message to an inferlet": r"said(m.InboxClosed())",
    "an unknown tag": r"frames.pack(1, codec.encode([99, 1, 2]))",
    "a field of another type": r"frames.pack(1, codec.encode([1, 'yes', 3]))",
    "too few fields": r"frames.pack(1, codec.encode([6, 'a']))",
    "text that is no UTF-8": r"frames.pack(1, b'\x93\x01\xc2\xa2\xff\xfe')",
}  # fmt: skip


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(make_home(tmp_path_factory.mktemp("pie")), {"FAKE_WORKER": "silent"})
    started = engine.run("def main(): pass")
    assert started.returncode == 0, started.stderr
    yield engine
    end_engine(engine)


@pytest.fixture
def client(attacked: Engine) -> Iterator[HubClient]:
    """Around each attack: a talk of others, and what the hub holds."""
    hub = attacked.card()["pid"]
    client = HubClient(attacked)
    echo = client.run(ECHO, name="echo")
    talk(client, echo, 20)
    memory, descriptors = resident_bytes(hub), num_descriptors(hub)
    yield client
    talk(client, echo, 50)
    client.send(echo, "end")
    assert client.value_of(echo) == "null"
    assert resident_bytes(hub) - memory < MEMORY
    client.say(c.Kill(tuple(client.rows())))
    wait_until(lambda: not client.rows())
    wait_until(lambda: num_descriptors(hub) <= descriptors)
    log = next(attacked.home.glob("logs/*.log")).read_text()
    assert "Traceback" not in log
    client.close()


def num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def talk(client: HubClient, process: str, count: int) -> None:
    """Messages there and back, one after the other."""
    for i in range(count):
        client.say(c.Message(process, False, f"echo {i}"))
        client.wait(c.Sent, lambda sent, i=i: sent.text == f"echo {i}")


def attack(client: HubClient, lines: str, **fields) -> str:
    """The process that does it, once it has begun."""
    body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    process = client.run(HEAD + body, **fields)
    client.wait(c.Sent, lambda sent: sent.process == process)
    client.send(process, "go")
    return process


@pytest.mark.parametrize("kind", ILLEGAL, ids=lambda kind: kind.replace(" ", "_"))
def test_an_inferlet_that_sends_what_is_no_frame_ends_alone(client: HubClient, kind):
    process = attack(client, f"channel().sendall({ILLEGAL[kind]})\nawait asyncio.sleep(600)")
    end = client.end_of(process)
    assert (end.exit, end.error) == (137, "ProtocolError"), end


def test_half_frames_that_are_held_open_hold_up_nobody(client: HubClient):
    lines = """
channel().sendall(struct.pack("<IB", 16 << 20, 1) + bytes(1 << 20))
await asyncio.sleep(600)
"""
    held = [attack(client, lines) for _ in range(10)]
    talk(client, "echo", 50)
    assert set(held) < set(client.rows())


def test_descriptors_that_an_inferlet_sends_are_closed(client: HubClient, attacked: Engine):
    hub = attacked.card()["pid"]
    lines = """
import time
own, left = channel(), 25
while left:
    try:
        socket.send_fds(own, [said(m.Send(False, "x"))], [0, 1])
        left -= 1
    except OSError:  # so many are on the way, of all processes of this user: until they arrive
        time.sleep(0.01)
own.setblocking(False)
session.send("sent")
await session.receive()
"""
    before = num_descriptors(hub)
    process = attack(client, lines)
    client.wait(c.Sent, lambda sent: sent.text == "sent")
    wait_until(lambda: num_descriptors(hub) <= before + 4)  # of the process itself
    assert client.send(process, "end") == c.ACCEPTED
    assert client.value_of(process) == "null"
    assert client.texts(process).count("x") == 25


FLOODS = {
    "messages": "m.Send(False, 'x')",
    "prints": "m.Output('stdout', 'x')",
    "requests for messages": "m.Receiving()",
    "requests for files": "m.ReceivingFile()",
    "messages to nobody": "m.SendTo('nobody', False, 'x')",
    "messages to another": "m.SendTo('sink', False, 'x')",
}


@pytest.mark.parametrize("kind", FLOODS, ids=lambda kind: kind.replace(" ", "_"))
def test_a_flood_holds_up_nobody_and_fills_no_memory(client: HubClient, attacked, kind):
    """From processes that read nothing of the answers."""
    client.run("async def main(i):\n  import asyncio\n  await asyncio.sleep(600)", name="sink")
    lines = f"""
own, many = channel(), said({FLOODS[kind]}) * 1000
for _ in range(25):
    own.sendall(many)
await asyncio.sleep(600)
"""
    flooding = HubClient(attacked)
    floods = [attack(flooding, lines) for _ in range(2)]
    talk(client, "echo", 30)
    assert set(floods) <= set(client.rows()), "they are at it"
    flooding.close()


def test_hub_and_inferlets_ask_for_short_slices_and_the_worker_does_not(client, attacked: Engine):
    """A process that computes without end holds up nobody who wakes."""
    if not slice_of(0):
        pytest.skip("this kernel does not know of slices")
    client.say(c.AskFacts(1))
    facts = client.wait(c.Facts)
    assert slice_of(facts.pid) == policy.HUB_SLICE
    assert slice_of(facts.zygote_pid) == policy.SLICE
    assert slice_of(facts.worker_pid) == slice_of(0)


def test_that_an_app_asks_for_messages_is_told_once(client: HubClient):
    """No client is held to account for such words: it could not read them fast enough."""
    process = attack(
        client,
        'channel().sendall(said(m.Receiving()) * 1000)\nchannel().setblocking(False)\nsession.send("all")',
    )
    client.value_of(process)
    assert "all" in client.texts(process)
    asked = [x for x in client.heard if isinstance(x, c.Receiving) and x.process == process]
    assert len(asked) == 1


def test_prints_and_messages_of_one_write_are_told_in_their_order(client: HubClient):
    lines = """
said_all = b""
for i in range(100):
    said_all += said(m.Output("stdout", f"a{i} ")) + said(m.Output("stdout", f"b{i} "))
    said_all += said(m.Output("stderr", f"c{i} ")) + said(m.Send(False, f"d{i} "))
channel().sendall(said_all)
"""
    process = attack(client, lines)
    client.value_of(process)
    events = [x for x in client.heard if isinstance(x, c.Sent | c.Printed) and x.process == process]
    words = "".join(event.text for event in events if event.text != "here").split()
    assert words == [f"{letter}{i}" for i in range(100) for letter in "abcd"]
    assert all("c" in x.text for x in events if isinstance(x, c.Printed) and x.stream == "stderr")


def test_what_an_inferlet_says_after_its_last_word_is_not_heard(client: HubClient):
    lines = """
channel().sendall(said(m.Returned("1")) + said(m.Returned("2")) + said(m.Send(False, "late")))
await asyncio.sleep(600)
"""
    process = attack(client, lines)
    assert client.value_of(process) == "1"
    talk(client, "echo", 5)
    assert not [x for x in client.heard if isinstance(x, c.Returned | c.Error)]
    assert "late" not in client.texts(process)


@pytest.mark.parametrize("last", ["raise SystemExit(3)", "os._exit(3)", "def main(i): return 1"])
def test_what_an_app_says_in_its_first_line_comes_after_word_of_its_launch(client: HubClient, last):
    """However early it speaks, and ends: its client knows nothing of a process before."""
    source = f"import os\nfrom inferlet import session\nsession.send('a')\nprint('b')\n{last}"
    request = client.ask(source, name="early")
    client.wait(c.Returned | c.Error, lambda end: end.process == "early")
    told = [x for x in client.heard if getattr(x, "process", None) == "early"]
    assert isinstance(told[0], c.Launched) and told[0].request == request


# ---- clients: trusted with the user's processes, but not to be without faults


@pytest.fixture
def peer(attacked: Engine) -> Iterator[zmq.Socket]:
    """A raw peer of the clients' socket."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVTIMEO, 120_000)
        made.connect(f"ipc://{hub_socket(attacked)}")
        yield made


def hub_socket(engine: Engine) -> Path:
    (path,) = engine.home.glob("run/*/hub.sock")
    return path


@pytest.mark.parametrize(
    "parts",
    [[b""], [b"garbage"], [b"\x91" * 100_000 + b"\x00"], [b"a", b"b"], [b"x"] * 10_000,
     [c.encode(c.List()), b""], [b"\xff" * (4 << 20)]],
    ids=["nothing", "garbage", "deep", "two_parts", "many_parts", "a_part_too_many", "4_MiB"],
)  # fmt: skip
def test_a_client_that_cannot_be_read_is_told_so(client: HubClient, peer: zmq.Socket, parts):
    peer.send_multipart(parts)
    assert isinstance(c.decode_from_hub(peer.recv()), c.EngineFailed)


def test_a_client_that_has_not_greeted_is_not_answered(client: HubClient, peer: zmq.Socket):
    for message in (c.List(), c.Kill(("echo",)), c.StopEngine(), c.AskFacts(1)):
        peer.send(c.encode(message))
    talk(client, "echo", 5)
    peer.setsockopt(zmq.RCVTIMEO, 100)
    with pytest.raises(zmq.Again):
        peer.recv()
    assert "echo" in client.rows()


@pytest.mark.parametrize("pid", [-(1 << 63), -1, 0, 1 << 30, 1 << 31, (1 << 64) - 1])
def test_a_greeting_with_a_number_that_no_process_has_is_answered(client, peer: zmq.Socket, pid):
    peer.send(c.encode(c.Hello(1, pid, "me")))
    peer.send(b"")  # what follows at once is read, too
    answers = [c.decode_from_hub(peer.recv()) for _ in range(2)]
    assert all(isinstance(answer, c.EngineFailed) for answer in answers)
    assert "cannot watch" in answers[0].message


def test_a_client_of_another_version_learns_which_one_this_is(client, peer: zmq.Socket):
    peer.send(c.encode(c.Hello(999, os.getpid(), "me")))
    welcome = c.decode_from_hub(peer.recv())
    assert isinstance(welcome, c.Welcome) and welcome.protocol != 999


@pytest.mark.parametrize(
    "said", [b"", b"\xff" + bytes(8), os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n" * 100],
    ids=["nothing", "half_a_greeting", "random", "http"],
)  # fmt: skip
def test_connections_that_speak_no_zeromq_hold_up_nobody(client, attacked: Engine, said):
    made: list[socket.socket] = []
    connect_all(made, hub_socket(attacked), said, 20)
    talk(client, "echo", 20)
    for each in made:
        each.close()


def connect_all(made: list[socket.socket], path: Path, said: bytes, count: int) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    for _ in range(count):
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].connect(f"/proc/self/fd/{folder}/{path.name}")
        made[-1].sendall(said)
    os.close(folder)


def test_a_client_that_floods_and_never_reads_holds_up_nobody(client, attacked: Engine):
    flooding = HubClient(attacked)
    for i in range(5000):
        flooding.say(c.ReadLog(i, "nobody"))
    talk(client, "echo", 50)
    flooding.close()


def test_a_sandboxed_child_reaches_no_socket_of_the_engine(client: HubClient, attacked: Engine):
    lines = f"""
try:
    made = socket.socket(socket.AF_UNIX)
    made.connect({json.dumps(str(hub_socket(attacked)))})
except OSError as error:
    session.send(type(error).__name__)
"""
    process = attack(client, lines)
    client.value_of(process)
    assert "PermissionError" in client.texts(process)
