"""attach, send, logs, trace: what other commands do with a live process, or with one that was."""

import json
import signal
import subprocess

import pytest

from tests.cli.conftest import SECONDS, Engine, read_until, wait_until

FILES = "tests/cli/programs/files.py"
WAIT = "tests/cli/programs/wait.py"
ECHO = """
from inferlet import session
async def main():
    got = []
    try:
        while True:
            got.append(await session.receive())
            session.send(f"got {got[-1]}")
    except EOFError:
        return got
"""


def launch(engine: Engine, app: object, *words: object) -> str:
    done = engine.pie("run", "--detach", app, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def inbox_size(engine: Engine, id: str) -> int:
    rows = json.loads(engine.pie("ps", "--json", "--wide").stdout)
    return next(row["inbox"] for row in rows if row["id"] == id)


def end(engine: Engine, id: str) -> None:
    engine.pie("kill", id)


@pytest.mark.parametrize(
    ("typed", "received"),
    [("hello", "hello"), ('{"a": [1]}', {"a": [1]}), ("[1, 2]", [1, 2]), ("12", "12"), ("", "")],
)
def test_a_message_is_json_when_it_looks_like_it_and_the_result_is_the_processes(
    engine, tmp_path, typed, received
):
    id = launch(engine, FILES)
    path = tmp_path / "data"
    path.write_bytes(b"a file")
    sent = engine.pie("send", id, typed, "--file", path)
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
    done = engine.pie("attach", id, "--no-stdin")
    assert json.loads(done.stdout) == {"message": received, "file": "a file"}
    assert '{"ready": true}' in done.stderr and "to stdout" in done.stderr


def test_attach_tells_the_past_and_the_end_as_events(engine, tmp_path):
    id = launch(engine, FILES, "-o", tmp_path)
    engine.pie("send", id, "x")
    (tmp_path / "empty").touch()
    engine.pie("send", id, "--file", tmp_path / "empty")
    wait_until(lambda: not engine.processes())
    done = engine.pie("attach", id, "--events", "--no-stdin")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {event["process"] for event in events} == {id}
    assert sorted(event["event"] for event in events) == sorted(
        ["launched", "file", "file", "stdout", "stderr", "message", "return"]
    )
    assert events[0]["app"] == FILES and events[0]["model"] == "fake"
    first, second = (event for event in events if event["event"] == "file")
    assert (first["path"], first["size"]) == (str(tmp_path / f"{id}-1"), 5)
    assert (tmp_path / f"{id}-1").read_bytes() == b"first"
    assert (second["path"], second["size"]) == (str(tmp_path / f"{id}-2"), 0)
    assert len(first["sha256"]) == 64
    assert events[-1]["value"] == {"message": "x", "file": ""}


def test_lines_of_stdin_reach_an_attached_process_and_its_inbox_stays_open(engine):
    id = launch(engine, engine.write(ECHO, "echo.py"))
    process = engine.start("attach", id, "--events", stdin=subprocess.PIPE)
    process.stdin.write("one\ntwo\n")
    process.stdin.close()
    read_until(process.stdout, "got two")
    assert engine.pie("send", id, "three", "--close").returncode == 0
    last = read_until(process.stdout, '"return"')
    assert json.loads(last)["value"] == ["one", "two", "three"]
    assert process.wait(SECONDS) == 0


def test_no_past_tells_only_what_comes(engine):
    id = launch(engine, engine.write(ECHO, "echo.py"))
    engine.pie("send", id, "one")
    other = engine.start("attach", id, "--events", "--no-stdin")
    read_until(other.stdout, "got one")
    process = engine.start("attach", id, "--events", "--no-stdin", "--no-past")
    read_until(process.stdout, '"launched"')
    engine.pie("send", id, "two", "--close")
    rest = process.communicate(timeout=SECONDS)[0]
    assert "got two" in rest and "got one" not in rest
    other.communicate(timeout=SECONDS)


def test_ctrl_c_leaves_the_process_running(engine):
    id = launch(engine, engine.write(ECHO, "echo.py"))
    process = engine.start("attach", id, "--events", "--no-stdin")
    read_until(process.stdout, '"launched"')
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert f"left `{id}`, which goes on" in errors
    assert id in {row["id"] for row in engine.processes()}
    end(engine, id)


def test_the_end_of_a_killed_process_is_that_of_its_attached_command(engine):
    id = launch(engine, WAIT)
    process = engine.start("attach", id, "--events", "--no-stdin")
    read_until(process.stdout, '"launched"')
    end(engine, id)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 137


def test_logs_keep_each_stream_and_follow_to_the_end(engine):
    id = launch(engine, FILES)
    wait_until(lambda: "to stderr" in engine.pie("logs", id).stderr)
    done = engine.pie("logs", id)
    assert (done.returncode, done.stdout, done.stderr) == (0, "to stdout\n", "to stderr\n")
    rows = json.loads(engine.pie("logs", id, "--json").stdout)
    assert [(row["stream"], row["text"]) for row in rows] == [
        ("stdout", "to stdout\n"),
        ("stderr", "to stderr\n"),
    ]
    following = engine.start("logs", "-f", id)
    assert following.stdout.readline() == "to stdout\n"
    end(engine, id)
    assert following.wait(SECONDS) == 0


@pytest.mark.parametrize("verb", [["attach"], ["send", "x"], ["logs"], ["trace"], ["kill"]])
def test_an_id_that_no_process_has_is_exit_2(engine, verb):
    done = engine.pie(verb[0], "no-such", *verb[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert "`no-such`" in done.stderr and "`pie ps` lists" in done.stderr


def test_sending_to_another_clients_process_is_exit_2_unless_one_speaks_for_it(engine):
    id = launch(engine, engine.write(ECHO, "echo.py"), "--client", "somebody")
    row = next(row for row in engine.processes() if row["id"] == id)
    assert row["client"] == "somebody"
    done = engine.pie("send", id, "x")
    assert done.returncode == 2
    assert f"`{id}` belongs to another client" in done.stderr
    assert engine.pie("send", id, "x", "--client", "somebody").returncode == 0
    end(engine, id)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to send"),
        (["{"], "the message is no JSON"),
        (["--file", "/no/such"], "cannot read `/no/such`"),
    ],
)
def test_what_cannot_be_sent_is_exit_2(engine, words, said):
    done = engine.pie("send", "any", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_full_inbox_is_told(engine):
    id = launch(engine, "tests/cli/programs/busy.py", "--limit", "inbox=1")
    assert engine.pie("send", id, "one").returncode == 0
    done = engine.pie("send", id, "two")
    assert done.returncode == 1
    assert f"the inbox of `{id}` is full" in done.stderr
    end(engine, id)


def test_a_trace_is_read_by_perfetto(engine, tmp_path):
    id = launch(engine, FILES)
    engine.pie("send", id, "x")
    wait_until(lambda: inbox_size(engine, id) == 0)  # after all that it says
    path = tmp_path / "trace.json"
    done = engine.pie("trace", id, "-o", path)
    assert done.returncode == 0 and str(path) in done.stderr
    trace = json.loads(path.read_text())
    assert trace["otherData"]["process"] == id
    events = trace["traceEvents"]
    kinds = {event["cat"] for event in events if event["ph"] != "M"}
    assert {"process", "message", "output"} <= kinds
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    end(engine, id)


def test_files_lie_in_the_home_by_default_and_are_told_on_stderr(engine):
    app = engine.write("from inferlet import session\ndef main(): session.send_file(b'abc')")
    done = engine.pie("run", app, "--name", "filer")
    path = engine.home / "files" / "filer-1"
    assert done.returncode == 0, done.stderr
    assert done.stdout == "null\n"
    assert f"file: {path} (3 bytes)" in done.stderr
    assert path.read_bytes() == b"abc"


def test_a_folder_for_files_that_cannot_be_made_is_exit_2_before_the_launch(engine, tmp_path):
    (tmp_path / "file").touch()
    done = engine.pie("run", WAIT, "-o", tmp_path / "file" / "x")
    assert done.returncode == 2
    assert "cannot store files in" in done.stderr


def test_a_limit_above_the_engines_own_is_exit_2(engine):
    done = engine.pie("run", WAIT, "--limit", "memory=2G")
    assert done.returncode == 2
    assert "memory" in done.stderr


def test_a_run_beyond_its_memory_limit_is_exit_137_and_names_it(engine):
    app = engine.write("def main(): return len(bytearray(1 << 29))")
    done = engine.pie("run", app, "--limit", "memory=64M", "--events")
    assert done.returncode == 137
    assert json.loads(done.stdout.splitlines()[-1])["limit"] == "memory"


@pytest.mark.parametrize("words", [["late"], ["--file", "README.md"]])
def test_nothing_is_sent_to_a_process_whose_input_was_closed(engine, words):
    app = "import asyncio\nasync def main(): await asyncio.Event().wait()"
    id = engine.pie("run", "--detach", engine.write(app)).stdout.strip()
    try:
        assert engine.pie("send", id, "--close").returncode == 0
        done = engine.pie("send", id, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the input of `{id}` is closed" in done.stderr
    finally:
        engine.pie("kill", id)
