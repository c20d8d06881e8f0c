"""`pie run` against a running engine: what comes out where, and the exit codes."""

import resource
import json
import re
import signal
import subprocess
import sys

import pytest

from pie_cli.sandbox import selftest
from tests.cli.conftest import ROOT, SECONDS, Engine, wait_until

TALK = """
from inferlet import session
async def main(input):
    session.send("hi "); session.send("there")
    session.send({"a": 1})
    print("printed")
    lines = []
    try:
        while True:
            lines.append(await session.receive())
    except EOFError:
        return {"lines": lines}
"""
WAIT = """
from inferlet import session
async def main(input):
    session.send("waiting\\n")
    await session.receive()
"""
FAIL = """
def main(input):
    return inner()
def inner():
    raise ValueError("boom")
"""


def waiting(engine: Engine, *words: object) -> subprocess.Popen:
    """A run that has said that it waits, and has heard no more."""
    process = engine.start("run", engine.write(WAIT, "wait.py"), "--no-stdin", *words)
    assert process.stderr.readline() == "waiting\n"
    return process


def test_the_value_of_main_alone_is_on_stdout(engine):
    done = engine.run("def main(input): return {'got': input}", "--", "--max-tokens", "5", "rest")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"got": {"max_tokens": 5, "_": ["rest"]}}
    assert done.stdout.count("\n") == 1


def test_arguments_are_merged_over_the_input(engine):
    app = "def main(input): return input"
    done = engine.run(app, "--input", '{"a": 1, "b": 2}', "--", "--b=3")
    assert json.loads(done.stdout) == {"a": 1, "b": 3}


def test_a_main_without_parameters_and_one_with_async_both_run(engine):
    assert engine.run("async def main(): return None").stdout == "null\n"


def test_raw_prints_a_str_without_quotes(engine):
    app = "def main(input): return 'a \"b\"'"
    assert engine.run(app).stdout == '"a \\"b\\""\n'
    assert engine.run(app, "--raw").stdout == 'a "b"\n'


def test_messages_and_prints_are_on_stderr_and_an_open_line_is_ended(engine):
    done = engine.run(TALK, stdin="x\ny")
    assert done.stderr == 'hi there\n{"a": 1}\nprinted\n'
    assert json.loads(done.stdout) == {"lines": ["x", "y"]}


def test_stream_puts_text_messages_alone_on_stdout(engine):
    done = engine.run(TALK, "--stream", stdin="")
    assert done.stdout == "hi there"
    assert [json.loads(x) for x in done.stderr.splitlines() if x != "printed"] == [
        {"a": 1}, {"lines": []},
    ]  # fmt: skip


def test_events_are_json_lines_with_the_fields_of_the_contract(engine):
    done = engine.run(TALK, "--events", stdin="x\n")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    for event in events:
        assert isinstance(event.pop("time"), float)
    process = events[0]["process"]
    printed = "".join(e["text"] for e in events if e["event"] == "stdout")
    assert printed == "printed\n" and done.stderr == ""
    base, tier = {"process": process}, selftest.probe().name
    path = str(engine.home / "apps" / "app.py")
    assert [e for e in events if e["event"] != "stdout"] == [
        {"event": "launched", **base, "app": path, "model": "fake", "sandbox": tier},
        {"event": "message", **base, "message": "hi "},
        {"event": "message", **base, "message": "there"},
        {"event": "message", **base, "message": {"a": 1}},
        {"event": "return", **base, "value": {"lines": ["x"]}},
    ]


def test_an_error_event_names_type_exit_and_limit(engine):
    done = engine.run(FAIL, "--events")
    event = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert "inner" in event.pop("traceback")
    del event["time"], event["process"]
    assert event == {
        "event": "error", "type": "ValueError", "message": "boom", "exit": 1, "limit": None,
    }  # fmt: skip


def test_more_lines_than_an_inbox_holds_all_arrive_in_order(engine):
    lines = [str(number) for number in range(25_000)]
    done = engine.run(TALK, stdin="\n".join(lines) + "\n")
    assert json.loads(done.stdout) == {"lines": lines}


def test_stdin_is_not_read_before_the_app_asks(engine):
    app = engine.write("def main(input): return 1")
    done = subprocess.run(
        f"{sys.executable} -m pie_cli run {app} >/dev/null; cat", shell=True, check=True, input="mine\n",
        capture_output=True, text=True, env=engine.environment, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "mine\n"


def test_no_stdin_leaves_the_inbox_open(engine):
    process = waiting(engine, "--name", "open")
    assert engine.pie("send", "open", "hello").returncode == 0
    assert process.communicate() == ("null\n", "")


def test_a_process_that_runs_too_long_exits_124(engine):
    done = engine.run("def main():\n  while True: pass", "--timeout", "0.5")
    assert done.returncode == 124
    assert done.stderr == "error: the process ran longer than its timeout of 0.5 s\n"


def test_input_from_stdin_leaves_no_lines(engine):
    done = engine.run(TALK, "--input", "-", stdin='{"a": 1}')
    assert json.loads(done.stdout) == {"lines": []}


def test_attached_files_are_given_by_name(engine, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 4096)
    app = "from inferlet import session\ndef main(i): return sum(session.file('d')), session.id()"
    done = engine.run(app, "--file", f"d={data}", "--name", "adder")
    assert json.loads(done.stdout) == [sum(range(256)) * 4096, "adder"]


def test_modules_beside_the_app_are_sent_along(engine):
    engine.write("from pack.part import value\n", "beside.py")
    (engine.home / "apps" / "pack").mkdir(exist_ok=True)
    engine.write("", "pack/__init__.py")
    engine.write("from . import other\nvalue = other.VALUE", "pack/part.py")
    engine.write("VALUE = 7", "pack/other.py")
    assert engine.run("import beside\ndef main(i): return beside.value").stdout == "7\n"


def test_a_failure_shows_the_users_frames_then_the_error(engine):
    done = engine.run(FAIL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("error: ValueError: boom\n")
    assert "line 5, in inner" in done.stderr and "inferlet/" not in done.stderr


@pytest.mark.parametrize(
    ("app", "exit", "words"),
    [
        ("import os\ndef main(input): os._exit(7)", 1, "exit status 7"),
        ("import ctypes\ndef main(input): ctypes.string_at(0)", 1, "crashed (SIGSEGV)"),
        ("def main(input): x = 'y' * (3 << 30)", 137, "limit `memory`"),
        ("def main(input):\n  while True: print('x' * (1 << 20))", 137, "limit `output`"),
    ],
)
def test_how_a_process_ends_decides_the_exit_code(engine, app, exit, words):
    done = engine.run(app)
    assert done.returncode == exit
    assert words in done.stderr[-500:]


BREAKS_PROTOCOL = """
import os, stat
def main(input):
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, BYTES)
        except OSError:
            pass
    while True:
        pass
"""


@pytest.mark.parametrize(
    "data", ["b'\\xff' * 64", "b'\\x02\\0\\0\\0\\x09x'", "b'\\x02\\0\\0\\0\\x01x'"]
)
def test_a_process_that_breaks_the_protocol_is_ended_alone(engine, data):
    other = waiting(engine, "--name", "bystander")
    done = engine.run(BREAKS_PROTOCOL.replace("BYTES", data))
    assert done.returncode == 137
    assert "broke the protocol" in done.stderr
    assert engine.pie("kill", "bystander").returncode == 0
    assert other.wait() == 137
    assert other.communicate()[1] == "error: the process was ended by `pie kill`\n"


def test_ctrl_c_ends_the_process_and_exits_130(engine):
    process = waiting(engine)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.communicate()[1] == "error: the process was interrupted\n"
    assert engine.processes() == []


def test_a_process_ends_with_its_client(engine):
    process = waiting(engine)
    process.kill()
    process.communicate()
    wait_until(lambda: not engine.processes())


def test_copies_give_one_result_a_line_in_order_and_the_largest_exit_code(engine):
    app = """
import time
def main(input):
    time.sleep(0.2 - input["_copy"] / 10)
    if input["_copy"] == 1:
        raise ValueError("one")
    return input["_copy"]
"""
    done = engine.run(app, "-n", 3)
    assert (done.returncode, done.stdout) == (1, "0\n2\n")
    assert re.search(r"^app-\d+: error: ValueError: one$", done.stderr, re.MULTILINE)


def test_a_detached_process_goes_on_and_its_name_is_taken(engine):
    app = engine.write(WAIT)
    done = engine.pie("run", app, "--detach", "--name", "long")
    assert (done.returncode, done.stdout, done.stderr) == (0, "long\n", "")
    (row,) = engine.processes()
    assert list(row) == [
        "id", "app", "client", "state", "age", "tokens_in", "tokens_out", "pages", "memory",
        "sandbox",
    ]  # fmt: skip
    assert (row["id"], row["app"], row["state"]) == ("long", str(app), "running")
    again = engine.pie("run", app, "--name", "long")
    assert again.returncode == 2 and "`long` is in use" in again.stderr
    assert engine.pie("kill", "long", "nobody").returncode == 2
    assert engine.processes() == []


def test_output_to_a_closed_pipe_ends_quietly(engine):
    app = "from inferlet import session\ndef main(i):\n  while True: session.send('x' * 9999)"
    process = engine.start("run", engine.write(app), "--stream")
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == ""


def test_launches_beyond_what_the_engine_may_hold_wait_for_their_turn(own_engine):
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (240, 240))

    app = own_engine.write("import asyncio\nasync def main(input):\n    await asyncio.sleep(0.5)\n")
    many = own_engine.start("run", app, "-n", 80, "--no-stdin", preexec_fn=few_descriptors)
    many_out, stderr = many.communicate(timeout=SECONDS)
    assert many.returncode == 0, stderr
    assert many_out.splitlines() == ["null"] * 80
    assert own_engine.run("def main(input):\n    return 1\n", "--no-stdin").returncode == 0


COPIES = """
import asyncio
from inferlet import session
async def main(input):
    for piece in ("The ", "answer\\n", "is"):
        session.send(piece)
        await asyncio.sleep(0.02)  # the other's piece comes between
    print("printed")
    session.send({"a": 1})
    session.send("end")
    if input["_copy"]:
        raise ValueError("boom")
    return "x\\ny"
"""


def test_lines_of_copies_are_whole_and_begin_with_their_ids(engine):
    words = ("-n", 2, "--name", "q", "--no-stdin")
    done = engine.run(COPIES, *words)
    assert (done.returncode, done.stdout) == (1, '"x\\ny"\n')
    own = ["The answer", "is", "printed", '{"a": 1}', "end"]
    lines = done.stderr.splitlines()
    assert [x[5:] for x in lines if x.startswith("q-0: ")] == own
    failed = [x[5:] for x in lines if x.startswith("q-1: ")]
    assert failed[:6] == [*own, "Traceback (most recent call last):"]
    assert failed[-1] == "error: ValueError: boom"
    assert all(x.startswith(("q-0: ", "q-1: ")) for x in lines)


def test_streamed_lines_of_copies_are_whole_and_begin_with_their_ids(engine):
    words = ("-n", 2, "--name", "q", "--no-stdin")
    done = engine.run(COPIES, "--stream", *words)
    for name in ("q-0", "q-1"):
        own = [x[5:] for x in done.stdout.splitlines() if x.startswith(f"{name}: ")]
        assert own == ["The answer", "isend"]
    assert len(done.stdout.splitlines()) == 4
    assert [x for x in done.stderr.splitlines() if x.startswith("q-0: ")] == [
        "q-0: printed", 'q-0: {"a": 1}', 'q-0: "x\\ny"',
    ]  # fmt: skip
