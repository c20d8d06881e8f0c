"""What clients may ask of the hub, over its own protocol, with real processes."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator

import pytest

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from tests.cli.conftest import Engine, wait_until
from tests.cli.hub_client import HubClient

TALK = """
from inferlet import session
async def main(input):
    for i in range(input.get("n", 2)):
        session.send(f"m{i}"); print(f"p{i}")
    while True:
        got = await session.receive()
        if got == "end":
            return "over"
        session.send({"got": got})
"""
RELAY = """
from inferlet import session
async def main(input):
    outcomes = []
    for i in range(input["count"]):
        try:
            session.send_to(input["to"], {"from": session.id(), "i": i})
        except (LookupError, PermissionError, BufferError) as error:
            outcomes.append(type(error).__name__)
            break
    return outcomes
"""


@pytest.fixture
def connect(engine: Engine) -> Iterator[Callable[..., HubClient]]:
    """Makes clients, and closes them; what they launched is ended."""
    if engine.card() is None:  # an earlier test has stopped it
        assert engine.run("def main(): pass").returncode == 0
    made: list[HubClient] = []

    def make(user: str = "me") -> HubClient:
        made.append(HubClient(engine, user))
        return made[-1]

    yield make
    for client in made:
        client.say(c.Kill(tuple(client.rows())))
        client.wait(c.Killed)
        client.close()


@pytest.fixture
def client(connect) -> HubClient:
    return connect()


# ---- attach


def attach(client: HubClient, process: str, past: bool = True) -> c.Attached:
    request = client.request()
    client.say(c.Attach(request, process, past))
    return client.wait(c.Attached, lambda message: message.request == request)


def test_a_second_client_hears_the_past_in_order_and_all_that_comes(client, connect):
    process = client.run(TALK)
    client.wait(c.Receiving)
    second = connect()
    facts = attach(second, process)
    assert (facts.app, facts.client, facts.live, facts.missed) == ("app.py", "me", True, 0)
    second.wait(c.Receiving)
    past = [text for text in second.texts(process) if not text.isspace()]
    assert "".join(past).replace("\n", "") in ("m0p0m1p1", "m0m1p0p1")
    assert client.send(process, "hi") == c.ACCEPTED
    for each in (client, second):
        assert each.wait(c.Sent, lambda sent: sent.is_json).text == '{"got": "hi"}'
    assert second.send(process, "end") == c.ACCEPTED
    assert [each.value_of(process) for each in (client, second)] == ['"over"'] * 2


def test_without_the_past_only_what_comes_is_heard(client, connect):
    process = client.run(TALK)
    client.wait(c.Receiving)
    second = connect()
    attach(second, process, past=False)
    second.send(process, "1", is_json=True)
    assert second.wait(c.Sent).text == '{"got": 1}'
    second.say(c.Detach(process))
    second.send(process, "end")
    assert client.value_of(process) == '"over"'
    second.rows()
    assert not [x for x in second.heard if isinstance(x, c.Returned)]


def test_a_detached_process_keeps_its_words_and_its_end_for_who_comes_late(client, connect):
    process = client.run(TALK, detach=True)
    assert client.send(process, "end") == c.ACCEPTED
    wait_until(lambda: process not in client.rows())
    assert not client.texts(process), "its own client hears of its launch alone"
    late = connect()
    facts = attach(late, process)
    assert not facts.live
    assert late.value_of(process) == '"over"'
    assert "m0" in late.texts(process)


def test_what_is_kept_is_bounded_and_says_what_is_missing(client, connect):
    source = """
from inferlet import session
def main(input):
    for i in range(300):
        session.send(str(i) + "x" * 10_000)
"""
    process = client.run(source)
    client.value_of(process)
    late = connect()
    facts = attach(late, process)
    late.value_of(process)
    texts = late.texts(process)
    assert texts[-1].startswith("299x") and sum(map(len, texts)) <= 1 << 20
    assert facts.missed == 300 - len(texts) > 0


def test_attaching_to_nobody_is_unknown(client):
    client.say(c.Attach(7, "nobody"))
    assert client.wait(c.Unknown) == c.Unknown(7, "nobody")


@pytest.mark.parametrize("attached", [False, True])
def test_a_client_that_shows_nothing_holds_up_the_process_in_bounded_memory(
    client, connect, attached
):
    source = """
from inferlet import session
async def main(input):
    for i in range(64):
        session.send("x" * (1 << 20))
    return "sent all"
"""
    slow = connect()
    slow.shows = False
    launcher = client if attached else slow
    gate = source.replace("    for", "    await session.receive()\n    for", 1)
    process = launcher.run(gate)
    if attached:
        attach(slow, process)
    launcher.send(process, "go")
    bystander = client.run("async def main(input): return 1")
    assert client.value_of(bystander) == "1"
    slow.wait(c.Sent)
    slow.rows()
    heard = [x for x in slow.heard if isinstance(x, c.Sent)]
    assert len(heard) < 20, "the process waits"
    slow.say(c.Shown(process, 64 << 21))
    if attached:
        client.value_of(process)
    assert slow.value_of(process) == '"sent all"'


# ---- send


def test_a_message_is_answered_with_what_became_of_it(client, connect):
    process = client.run(TALK)
    assert client.send("nobody", "hi") == c.UNKNOWN
    assert connect("other").send(process, "hi") == c.OTHER_CLIENT
    assert connect("me").send(process, "end") == c.ACCEPTED
    assert client.value_of(process) == '"over"'
    assert client.send(process, "late") == c.UNKNOWN


def test_an_inbox_is_full_at_its_limit_and_has_room_once_the_app_receives(client):
    source = """
import asyncio
from inferlet import session
async def main(input):
    await session.receive()
    await asyncio.sleep(0.3)
    return [await session.receive() for _ in range(3)]
"""
    process = client.run(source, limits=c.Asked(inbox=3))
    client.send(process, "go")
    client.wait(c.Taken)
    assert [client.send(process, text) for text in "abcd"] == [c.ACCEPTED] * 3 + [c.FULL]
    assert client.value_of(process) == '["a", "b", "c"]'


def test_a_message_without_a_request_is_never_lost_to_a_full_inbox(client):
    source = """
from inferlet import session
async def main(input):
    return [await session.receive() for _ in range(5)]
"""
    process = client.run(source, limits=c.Asked(inbox=1))
    for text in "abcde":
        client.say(c.Message(process, False, text))
    assert client.value_of(process) == '["a", "b", "c", "d", "e"]'


# ---- send_to


def test_processes_of_one_client_reach_each_other_in_order(client, connect):
    source = """
from inferlet import session
async def main(input):
    return [(await session.receive())["i"] for _ in range(input["count"])]
"""
    receiver = client.run(source, '{"count": 5000}')
    sender = connect().run(RELAY, json.dumps({"to": receiver, "count": 5000}))
    assert json.loads(client.value_of(receiver)) == list(range(5000))
    assert sender not in client.rows()


def test_send_to_names_what_is_wrong(client):
    receiver = client.run(TALK)
    other = client.run(TALK, client="somebody-else")
    full = client.run("async def main(input):\n  import asyncio\n  await asyncio.sleep(99)")
    for to, count, outcomes in (
        ("nobody", 1, ["LookupError"]), (other, 1, ["PermissionError"]), (receiver, 2, []),
        (full, 10_000, []), (full, 1, ["BufferError"]),
    ):  # fmt: skip
        sender = client.run(RELAY, json.dumps({"to": to, "count": count}))
        assert json.loads(client.value_of(sender)) == outcomes
    client.send(receiver, "end")
    client.value_of(receiver)
    sender = client.run(RELAY, json.dumps({"to": receiver, "count": 1}))
    assert json.loads(client.value_of(sender)) == ["LookupError"], "it has finished"


def test_an_inbox_of_64_mib_is_full(client):
    full = client.run("async def main(input):\n  import asyncio\n  await asyncio.sleep(99)")
    source = """
from inferlet import session
def main(input):
    for i in range(100):
        try:
            session.send_to(input["to"], "x" * (1 << 20))
        except BufferError as error:
            return [i, str(error)]
"""
    sender = client.run(source, json.dumps({"to": full}))
    count, words = json.loads(client.value_of(sender))
    assert count == 64 and f"`{full}`" in words


def test_a_process_sends_to_itself_also_what_it_has_not_received(client):
    source = """
from inferlet import session
async def main(input):
    for i in range(10_000):
        session.send_to(session.id(), i)
    try:
        session.send_to(session.id(), -1)
    except BufferError:
        session.send("full")
    got = [await session.receive() for _ in range(10_000)]
    session.send_to(session.id(), "again")
    return [got == list(range(10_000)), await session.receive()]
"""
    process = client.run(source)
    assert json.loads(client.value_of(process)) == [True, "again"]
    assert client.texts(process) == ["full"]


def test_sending_to_processes_that_are_being_killed_is_a_lookup_error_or_nothing(client):
    source = """
from inferlet import session
async def main(input):
    for i in range(200_000):
        try:
            session.send_to(input["to"], i)
        except LookupError:
            return "gone"
        except BufferError:
            pass
"""
    for _ in range(3):
        victim = client.run(TALK, '{"n": 0}')
        sender = client.run(source, json.dumps({"to": victim}))
        client.wait(c.Sent, lambda sent, victim=victim: sent.process == victim)
        client.say(c.Kill((victim,)))
        assert client.value_of(sender) == '"gone"'


# ---- files


def parts_of(request: int, process: str, data: bytes) -> list[c.FilePart]:
    digest = hashlib.sha256(data).digest()
    pieces = [data[i : i + c.FILE_PART] for i in range(0, len(data), c.FILE_PART)] or [b""]
    return [
        c.FilePart(request, process, len(data), piece, digest if i == len(pieces) - 1 else b"")
        for i, piece in enumerate(pieces)
    ]


def transfer(client: HubClient, process: str, parts: list[c.FilePart]) -> str:
    for part in parts:
        client.say(part)
    fits = lambda message: message.request == parts[0].request  # noqa: E731
    return client.wait(c.Answered, fits).outcome


@pytest.mark.parametrize("when", ["before", "after"])
def test_files_arrive_whole_and_in_order_whenever_the_app_asks(client, when):
    source = """
import hashlib
from inferlet import session
async def main(input):
    if input["when"] == "before":
        await session.receive()
    return [hashlib.sha256(await session.receive_file()).hexdigest() for _ in range(3)]
"""
    files = [b"", b"small", bytes(range(256)) * (20 << 10)]
    process = client.run(source, json.dumps({"when": when}))
    for data in files:
        assert transfer(client, process, parts_of(client.request(), process, data)) == c.ACCEPTED
    client.send(process, "go")
    digests = [hashlib.sha256(data).hexdigest() for data in files]
    assert json.loads(client.value_of(process)) == digests


def test_a_file_that_cannot_be_taken_is_answered_once(client, connect):
    process = client.run(TALK)
    good = parts_of(1001, process, b"x" * (c.FILE_PART * 3))
    assert transfer(client, "nobody", parts_of(1000, "nobody", b"abc")) == c.UNKNOWN
    assert transfer(connect("other"), process, good) == c.OTHER_CLIENT
    damaged = [*good[:1], c.FilePart(1001, process, good[0].size, b"y", good[-1].sha256)]
    assert transfer(client, process, damaged) == c.DAMAGED
    huge = [c.FilePart(1002, process, c.MAX_FILE + 1, b"x"), c.FilePart(1002, process, 1, b"", b"x")]
    assert transfer(client, process, huge) == c.DAMAGED
    assert transfer(client, process, parts_of(1003, process, b"fine")) == c.ACCEPTED
    client.rows()
    assert not [x for x in client.heard if isinstance(x, c.Answered)]


def test_the_end_of_the_client_is_eof_for_files_after_those_that_came(client):
    source = """
from inferlet import session
async def main(input):
    await session.receive()
    got = [await session.receive_file()]
    try:
        await session.receive_file()
    except EOFError:
        return [len(got[0]), "eof"]
"""
    process = client.run(source)
    transfer(client, process, parts_of(client.request(), process, b"abc"))
    client.send(process, "go")
    client.say(c.CloseInput(process))
    assert client.value_of(process) == '[3, "eof"]'


SEND_FILES = """
from inferlet import session
def main(input):
    session.send_file(b"")
    session.send_file(bytes(range(256)) * input.get("blocks", 1))
"""


def test_files_of_an_app_are_stored_under_its_name(client, connect, tmp_path):
    folder = tmp_path / "out"
    process = client.run(SEND_FILES, '{"blocks": 40000}', files_folder=str(folder))
    client.value_of(process)
    stored = [client.wait(c.Stored) for _ in range(2)]
    data = bytes(range(256)) * 40000
    assert [(x.number, x.path, x.size) for x in stored] == [
        (1, str(folder / f"{process}-1"), 0), (2, str(folder / f"{process}-2"), len(data)),
    ]  # fmt: skip
    assert stored[1].sha256 == hashlib.sha256(data).hexdigest()
    assert (folder / f"{process}-2").read_bytes() == data
    assert {path.name for path in folder.iterdir()} == {f"{process}-1", f"{process}-2"}
    late = connect()
    attach(late, process)
    assert late.wait(c.Stored) == stored[0]


def test_files_go_to_the_home_by_default_also_of_detached_processes(client, engine):
    process = client.run(SEND_FILES, detach=True)
    wait_until(lambda: process not in client.rows())
    assert (engine.home / "files" / f"{process}-2").read_bytes() == bytes(range(256))


def test_a_file_that_cannot_be_stored_is_said_so_and_the_process_goes_on(client, tmp_path):
    (tmp_path / "file").write_text("in the way")
    process = client.run(SEND_FILES, files_folder=str(tmp_path / "file"))
    assert "exists" in client.wait(c.Stored).error
    assert client.value_of(process) == "null"
    assert (tmp_path / "file").read_text() == "in the way"


def test_an_incomplete_file_leaves_nothing(client, tmp_path):
    source = """
import asyncio
from inferlet.runtime import handles
from ipc import messages as m
async def main(input):
    handles.current().outbox.message(m.SendFilePart(100, b"x" * 50))
    await asyncio.sleep(99)
"""
    process = client.run(source, files_folder=str(tmp_path))
    wait_until(lambda: [path.name for path in tmp_path.iterdir()] == [f".{process}-1.part"])
    client.say(c.Kill((process,)))
    client.end_of(process)
    wait_until(lambda: not list(tmp_path.iterdir()))


# ---- logs


def read_log(client: HubClient, process: str, follow: bool = False) -> c.Log:
    client.say(c.ReadLog(5, process, follow))
    return client.wait(c.Log)


def test_the_log_holds_what_was_printed_also_after_the_end(client, connect):
    source = "import sys\ndef main(i): print('out'); print('err', file=sys.stderr); raise SystemExit"
    process = client.run(source)
    client.end_of(process)
    log = read_log(connect("other"), process)
    assert not log.live and log.missed == 0
    assert "".join(x.text for x in log.printed if x.stream == "stdout") == "out\n"
    assert "".join(x.text for x in log.printed if x.stream == "stderr") == "err\n"


def test_a_long_log_keeps_its_end_and_says_what_is_missing(client):
    source = "def main(i):\n  for n in range(50): print(n, 'x' * 99_995)"
    process = client.run(source)
    client.value_of(process)
    log = read_log(client, process)
    text = "".join(x.text for x in log.printed)
    assert text.endswith("x\n") and "49 " in text and len(text) <= 1 << 20
    assert log.missed + len(text) == sum(len(f"{n} ") + 99_996 for n in range(50))


def test_following_a_log_gives_prints_and_the_end_alone(client, connect):
    process = client.run(TALK)
    client.wait(c.Receiving)
    follower = connect()
    log = read_log(follower, process, follow=True)
    assert "".join(x.text for x in log.printed) == "p0\np1\n"
    client.send(process, "end")
    assert follower.value_of(process) == '"over"'
    assert not [x for x in follower.heard if isinstance(x, c.Sent | c.Receiving)]


def test_only_the_last_ended_processes_are_remembered(client):
    first = client.run("def main(i): return 1")
    client.value_of(first)
    for _ in range(210):
        client.ask("def main(i): return 1")
    for _ in range(210):
        client.wait(c.Returned)
    client.say(c.ReadLog(9, first))
    assert client.wait(c.Unknown).process == first


def test_a_connection_that_leaves_ends_its_processes_and_holds_up_no_other(client, connect):
    leaving = connect()
    leaving.shows = False
    own = leaving.run("async def main(i):\n  import asyncio\n  await asyncio.sleep(99)")
    source = """
from inferlet import session
async def main(input):
    await session.receive()
    for i in range(20):
        session.send("x" * (1 << 20))
"""
    process = client.run(source)
    attach(leaving, process)
    client.send(process, "go")
    leaving.wait(c.Sent)
    before = client.rows()[process].views
    leaving.say(c.Leave())
    assert before == 2 and client.value_of(process) == "null"
    wait_until(lambda: own not in client.rows())
    leaving.say(c.Hello(PROTOCOL_VERSION, os.getpid(), "me"))
    leaving.wait(c.Welcome)


# ---- limits, and what the engine is


def test_limits_above_the_engines_own_are_refused_by_name(client):
    client.ask("def main(i): pass", limits=c.Asked(memory=1 << 40))
    refused = client.wait(c.Refused)
    assert "`memory`" in refused.message and "not raise" in refused.hint
    client.ask("def main(i): pass", limits=c.Asked(cpu=0))
    assert "`cpu`" in client.wait(c.Refused).message


def test_facts_tell_of_the_parts_and_the_limits(client, engine):
    client.say(c.AskFacts(3))
    facts = client.wait(c.Facts)
    assert facts.request == 3 and facts.pid == engine.card()["pid"]
    assert facts.worker_pid == engine.engine_pid("worker")
    assert facts.zygote_pid == engine.engine_pid("zygote")
    assert facts.model.name == "fake" and facts.limits.inbox == 10_000
    assert facts.queued == 0 and facts.clients >= 1


def test_rows_tell_of_inboxes_views_and_times(client, connect):
    process = client.run("async def main(i):\n  import asyncio\n  await asyncio.sleep(99)")
    client.send(process, "a")
    second = connect()
    attach(second, process)
    row = wait_until(lambda: (r := client.rows()[process]).cpu is not None and r)
    assert (row.state, row.model, row.inbox, row.views) == ("running", "fake", 1, 2)
    assert row.memory > 1 << 20 and row.cpu >= 0


@pytest.mark.parametrize(
    ("source", "limits", "limit"),
    [
        ("def main(i): x = 'y' * (200 << 20)", {"memory": 64 << 20}, "memory"),
        # Code that does not look for failed allocations crashes near the limit.
        ("import ctypes\ndef main(i):\n  x = 'y' * (60 << 20); ctypes.string_at(0)",
         {"memory": 70 << 20}, "memory"),
        ("import ctypes\ndef main(i):\n  ctypes.string_at(0)", {"memory": 70 << 20}, None),
        ("import os\ndef main(i):\n  while True: os.dup(0)", {"descriptors": 20}, "descriptors"),
        ("def main(i):\n  while True: print('x' * 999)", {"output": 10_000}, "output"),
        ("def main(i):\n  while True: pass", {"cpu": 1}, "cpu"),
    ],
)  # fmt: skip
def test_a_process_beyond_a_limit_of_its_launch_ends_by_it(client, source, limits, limit):
    end = client.end_of(client.run(source, limits=c.Asked(**limits)))
    assert end.limit == limit
    assert end.exit == (137 if limit else 1)
    assert not limit or f"`{limit}`" in end.message


def test_a_bare_launch_needs_little_memory(client):
    process = client.run("async def main(i): return 'x'", limits=c.Asked(memory=4 << 20))
    assert client.value_of(process) == '"x"'


def test_more_messages_a_second_than_the_limit_wait_and_none_is_lost(client):
    source = """
from inferlet import session
def main(input):
    for i in range(250):
        session.send(i)
"""
    process = client.run(source, limits=c.Asked(messages=100))
    client.value_of(process)
    assert client.texts(process) == [str(i) for i in range(250)]


# ---- traces


def test_a_timeline_has_the_moments_of_a_process_in_order_also_after_its_end(client):
    process = client.run(TALK)
    client.send(process, "hi")
    client.send(process, "end")
    client.value_of(process)
    client.say(c.ReadTrace(11, process))
    timeline = client.wait(c.Timeline)
    assert (timeline.request, timeline.app, timeline.live) == (11, "app.py", False)
    names = [span.name for span in timeline.spans]
    assert names[0] == "launched" and names[-1] == "ended"
    assert names.count("sent") == 3 and names.count("received") == 2 and "printed" in names
    assert [span.start for span in timeline.spans] == sorted(span.start for span in timeline.spans)
    client.say(c.ReadTrace(12, "nobody"))
    assert client.wait(c.Unknown).request == 12


def test_a_file_that_an_ended_engine_left_incomplete_is_gone(own_engine, tmp_path):
    assert own_engine.run("def main(): pass").returncode == 0
    client = HubClient(own_engine)
    source = """
import asyncio
from inferlet.runtime import handles
from ipc import messages as m
async def main(input):
    handles.current().outbox.message(m.SendFilePart(100, b"x" * 50))
    await asyncio.sleep(99)
"""
    process = client.run(source, files_folder=str(tmp_path / "out"))
    wait_until(lambda: [path.name for path in tmp_path.glob("out/.*")] == [f".{process}-1.part"])
    client.close()
    own_engine.pie("stop")
    assert not list((tmp_path / "out").iterdir())


HOSTILE = """
from inferlet.runtime import handles
from ipc import codec, frames
from ipc import messages as m
async def main(input):
    for message in MESSAGES:
        handles.current().outbox._frame(frames.HUB, codec.encode(message))
    while True:
        pass
"""


@pytest.mark.parametrize(
    "messages",
    [
        "[m.Send(True, 'no json')]",
        "[m.Returned('{')]",
        "[m.Output('return', 'x')]",
        "[m.Received(1)]",
        "[m.Received(-1)]",
        "[m.Received(1 << 62)]",
        "[m.SendFilePart(-1, b'')]",
        "[m.SendFilePart(1 << 60, b'')]",
        "[m.SendFilePart(1, b'xx')]",
        "[m.SendFilePart(2, b'x'), m.SendFilePart(3, b'y')]",
        "[m.SendFilePart(1, b'x', b'not a hash')]",
    ],
)
def test_a_process_that_says_what_cannot_be_ends_alone(client, tmp_path, messages):
    bystander = client.run(TALK)
    process = client.run(HOSTILE.replace("MESSAGES", messages), files_folder=str(tmp_path))
    end = client.end_of(process)
    assert end.error == "ProtocolError" and end.exit == 137
    assert client.send(bystander, "end") == c.ACCEPTED
    assert client.value_of(bystander) == '"over"'
    wait_until(lambda: not list(tmp_path.iterdir()))


def test_odd_receivers_of_messages_are_unknown_and_harm_nobody(client):
    source = """
from inferlet import session
def main(input):
    outcomes = []
    for to in ("", "../x", "x" * 1_000_000, "a b", "\\u0000"):
        try:
            session.send_to(to, "hi")
        except LookupError:
            outcomes.append(1)
    return outcomes
"""
    assert json.loads(client.value_of(client.run(source))) == [1] * 5


@pytest.mark.parametrize("seed", [1])
def test_random_requests_and_kills_leave_nothing(tmp_path, seed):
    from tests.cli.hub_soak import soak  # it uses this module's apps

    assert soak(tmp_path, seed, seconds=5.0).launched > 10
