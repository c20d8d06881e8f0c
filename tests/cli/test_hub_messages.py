"""Messages into processes, of clients and of other processes."""

import json

import pytest

from ipc import client as c
from tests.cli.conftest import wait_until
from tests.cli.hub_apps import HOSTILE, RELAY, TALK
from tests.cli.hub_client import parts_of

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
from inferlet import session
async def main(input):
    await session.receive()
    await session.receive_file()
    return [await session.receive() for _ in range(4)]
"""
    process = client.run(source, limits=c.Asked(inbox=3))
    client.send(process, "go")
    client.wait(c.Taken)
    assert [client.send(process, text) for text in "abcd"] == [c.ACCEPTED] * 3 + [c.FULL]
    assert client.transfer(parts_of(client.request(), process, b"go on")) == c.ACCEPTED
    wait_until(lambda: client.send(process, "e") == c.ACCEPTED)
    assert client.value_of(process) == '["a", "b", "c", "e"]'


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
    others = connect()
    sender = others.run(RELAY, json.dumps({"to": receiver, "count": 5000}))
    assert json.loads(client.value_of(receiver)) == list(range(5000))
    assert json.loads(others.value_of(sender)) == [], "no error of `send_to`"


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
    while True:
        try:
            session.send_to(input["to"], 1)
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
