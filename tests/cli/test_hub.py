"""Who hears of a process, and what is remembered of it: over the hub's own protocol."""

import os

import pytest

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from tests.cli.conftest import wait_until
from tests.cli.hub_apps import TALK
from tests.cli.hub_client import HubClient


def test_a_second_client_hears_the_past_in_order_and_all_that_comes(client, connect):
    process = client.run(TALK)
    client.wait(c.Receiving)
    second = connect()
    facts = second.attach(process)
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
    second.attach(process, past=False)
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
    facts = late.attach(process)
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
    facts = late.attach(process)
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
        slow.attach(process)
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
    leaving.attach(process)
    client.send(process, "go")
    leaving.wait(c.Sent)
    before = client.rows()[process].views
    leaving.say(c.Leave())
    assert before == 2 and client.value_of(process) == "null"
    wait_until(lambda: own not in client.rows())
    leaving.say(c.Hello(PROTOCOL_VERSION, os.getpid(), "me"))
    leaving.wait(c.Welcome)


# ---- logs


def read_log(client: HubClient, process: str, follow: bool = False) -> c.Log:
    client.say(c.ReadLog(5, process, follow))
    return client.wait(c.Log)


def test_the_log_holds_what_was_printed_also_after_the_end(client, connect):
    source = (
        "import sys\ndef main(i): print('out'); print('err', file=sys.stderr); raise SystemExit"
    )
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
    second.attach(process)
    row = wait_until(lambda: (r := client.rows()[process]).cpu is not None and r)
    assert (row.state, row.model, row.inbox, row.views) == ("running", "fake", 1, 2)
    assert row.cpu >= 0


def test_rows_tell_of_memory_beyond_a_bare_launch(client):
    rests = "async def main(i):\n  import asyncio\n  await asyncio.sleep(99)"
    holds = "async def main(i):\n  x = b'x' * (100 << 20)\n  import asyncio\n  await asyncio.sleep(99)"
    idle, large = client.run(rests), client.run(holds)
    wait_until(lambda: (client.rows()[large].memory or 0) > 95 << 20)
    rows = client.rows()
    assert rows[idle].memory < 20 << 20 and rows[large].memory < 130 << 20
