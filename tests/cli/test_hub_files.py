"""Files into processes and of processes, through a real hub."""

import hashlib
import json

import pytest

from ipc import client as c
from tests.cli.conftest import wait_until
from tests.cli.hub_apps import SEND_FILES, TALK
from tests.cli.hub_client import HubClient, parts_of


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
        assert client.transfer(parts_of(client.request(), process, data)) == c.ACCEPTED
    client.send(process, "go")
    digests = [hashlib.sha256(data).hexdigest() for data in files]
    assert json.loads(client.value_of(process)) == digests


def test_a_file_that_cannot_be_taken_is_answered_once(client, connect):
    process = client.run(TALK)
    good = parts_of(1001, process, b"x" * (c.FILE_PART * 3))
    assert client.transfer(parts_of(1000, "nobody", b"abc")) == c.UNKNOWN
    assert connect("other").transfer(good) == c.OTHER_CLIENT
    damaged = [*good[:1], c.FilePart(1001, process, good[0].size, b"y", good[-1].sha256)]
    assert client.transfer(damaged) == c.DAMAGED
    huge = [
        c.FilePart(1002, process, c.MAX_FILE + 1, b"x"),
        c.FilePart(1002, process, 1, b"", b"x"),
    ]
    assert client.transfer(huge) == c.DAMAGED
    assert client.transfer(parts_of(1003, process, b"fine")) == c.ACCEPTED
    for part in parts_of(1004, "nobody", b"x" * (c.FILE_PART * 3)):
        client.say(part)
    assert client.wait(c.Answered).outcome == c.UNKNOWN, "at the first part"
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
    client.transfer(parts_of(client.request(), process, b"abc"))
    client.send(process, "go")
    client.say(c.CloseInput(process))
    assert client.value_of(process) == '[3, "eof"]'


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
    late.attach(process)
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
from inferlet import session
from inferlet.runtime import handles
from ipc import messages as m
async def main(input):
    handles.current().outbox.message(m.SendFilePart(100, b"x" * 50))
    session.send("half of it")
    await asyncio.sleep(99)
"""
    process = client.run(source, files_folder=str(tmp_path))
    client.wait(c.Sent)
    client.say(c.Kill((process,)))
    client.end_of(process)
    wait_until(lambda: not list(tmp_path.iterdir()))


def test_a_file_that_an_ended_engine_left_incomplete_is_gone(own_engine, tmp_path):
    assert own_engine.run("def main(): pass").returncode == 0
    client = HubClient(own_engine)
    source = """
import asyncio
from inferlet import session
from inferlet.runtime import handles
from ipc import messages as m
async def main(input):
    handles.current().outbox.message(m.SendFilePart(100, b"x" * 50))
    session.send("half of it")
    await asyncio.sleep(99)
"""
    client.run(source, files_folder=str(tmp_path / "out"))
    client.wait(c.Sent)
    client.close()
    own_engine.pie("stop")
    assert not list((tmp_path / "out").iterdir())
