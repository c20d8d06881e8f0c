"""One engine for many runs; whatever part is killed, the rest says so and nothing is left."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.cli.conftest import (
    ROOT, SECONDS, Engine, children, is_gone, pid_of_inferlet, read_until, wait_until,
)  # fmt: skip

HELLO = "def main(input): return 'hello'"
USES_WORKER = """
import asyncio
from inferlet import *
async def main(input):
    ws, pipe = WorkingSet(), Pipeline()
    ws.reserve(4)
    await asyncio.sleep(0.1)  # its commands leave
    session.send("working\\n")
    await session.receive()
"""
WAIT = """
import os
import re
import resource
import shutil
from inferlet import session
async def main(input):
    session.send("waiting\\n")
    print(os.getpid())
    await session.receive()
"""


@pytest.fixture
def waiting(own_engine: Engine):
    """An engine with a process that waits for ever, and every process id of the engine."""
    own_engine.extra["FAKE_WORKER"] = "silent"
    process = own_engine.start("run", own_engine.write(WAIT), "--no-stdin")
    read_until(process.stderr, "waiting")
    hub = own_engine.card()["pid"]
    parts = [hub, *children(hub), *children(own_engine.engine_pid("zygote"))]
    yield own_engine, process, parts
    process.kill()


def part_of(engine: Engine, part: str) -> int | None:
    """The process of a part, if the engine lives and has one."""
    try:
        return engine.engine_pid(part)
    except (StopIteration, TypeError):
        return None


def says_where_the_log_is(stderr: str, engine: Engine) -> bool:
    logs = [str(path) for path in engine.home.glob("logs/*.log")]
    return any(f"its log is `{log}`" in stderr for log in logs)


def test_many_runs_at_once_start_one_engine(own_engine):
    app = own_engine.write(HELLO)
    runs = [own_engine.start("run", app) for _ in range(8)]
    outputs = [run.communicate()[0] for run in runs]
    assert outputs == ['"hello"\n'] * 8
    assert len(list(own_engine.home.glob("logs/*.log"))) == 1


def test_keep_alive_0_leaves_with_the_run(own_engine):
    assert own_engine.run(HELLO, "--keep-alive", "0").returncode == 0
    wait_until(lambda: own_engine.card() is None)


def test_stop_ends_processes_and_leaves_no_file_that_blocks(waiting):
    engine, process, parts = waiting
    assert engine.pie("stop").returncode == 0
    assert process.wait() == 137
    assert "the engine was stopped" in process.communicate()[1]
    wait_until(lambda: all(map(is_gone, parts)))
    assert {path.name for path in engine.home.glob("run/*/*")} == {"lock", "start.lock"}


def test_kill_9_of_the_hub_ends_all_parts_and_the_next_run_starts_anew(waiting):
    engine, process, parts = waiting
    os.kill(parts[0], signal.SIGKILL)
    assert process.wait() == 3
    stderr = process.communicate()[1]
    assert "error: the engine ended unexpectedly\n" in stderr
    assert says_where_the_log_is(stderr, engine)
    wait_until(lambda: all(map(is_gone, parts)))
    assert engine.run(HELLO).stdout == '"hello"\n'


def test_kill_9_of_the_worker_ends_what_had_state_in_it_and_nothing_else(waiting):
    engine, process, parts = waiting
    with_state = engine.start("run", engine.write(USES_WORKER, "uses.py"), "--no-stdin")
    assert with_state.stderr.readline() == "working\n"
    os.kill(engine.engine_pid("worker"), signal.SIGKILL)
    assert with_state.wait(timeout=SECONDS) == 3
    stderr = with_state.communicate()[1]
    assert stderr.count("error:") == 1
    assert "the worker ended unexpectedly (SIGKILL)" in stderr
    assert says_where_the_log_is(stderr, engine)
    assert engine.run(HELLO).stdout == '"hello"\n'
    assert engine.card()["pid"] == parts[0]
    assert process.poll() is None, "it had nothing in the worker"


def test_a_worker_that_dies_again_and_again_ends_the_engine(waiting):
    engine, process, parts = waiting
    for _ in range(4):
        old = wait_until(lambda: part_of(engine, "worker"))
        os.kill(old, signal.SIGKILL)
        wait_until(lambda old=old: is_gone(old))
        if not is_gone(parts[0]):
            wait_until(lambda: is_gone(parts[0]) or engine.run(HELLO).returncode == 0)
    assert process.wait(timeout=SECONDS) == 3
    assert "for the 4th time" in process.communicate()[1]
    wait_until(lambda: all(map(is_gone, parts)))


def test_a_zygote_that_dies_again_and_again_ends_the_engine(own_engine):
    first = own_engine.start("run", own_engine.write(WAIT), "--no-stdin")
    read_until(first.stderr, "waiting")
    hub = own_engine.card()["pid"]
    for _ in range(4):
        old = wait_until(lambda: part_of(own_engine, "zygote"))
        os.kill(old, signal.SIGKILL)
        wait_until(lambda old=old: is_gone(old))
        if not is_gone(hub):
            wait_until(lambda: is_gone(hub) or own_engine.run(HELLO).returncode == 0)
    assert first.wait(timeout=SECONDS) == 3
    wait_until(lambda: is_gone(hub))
    logs = [path.read_text() for path in own_engine.home.glob("logs/*.log")]
    assert any("zygote ended 4 times" in log for log in logs)


def test_kill_9_of_the_zygote_ends_its_processes_but_not_the_engine(waiting):
    engine, process, parts = waiting
    os.kill(engine.engine_pid("zygote"), signal.SIGKILL)
    assert process.wait() == 3
    assert "the sandbox's zygote ended" in process.communicate()[1]
    assert engine.run(HELLO).stdout == '"hello"\n'
    assert engine.card()["pid"] == parts[0]


def test_kill_9_of_an_inferlet_is_told_as_such(waiting):
    engine, process, _ = waiting
    inner = next(int(line) for line in process.stderr if line.strip().isdigit())
    os.kill(pid_of_inferlet(engine.engine_pid("zygote"), inner), signal.SIGKILL)
    assert process.wait() == 137
    assert "the process was ended from outside (SIGKILL)" in process.communicate()[1]


def test_a_lost_engine_is_an_error_event_for_each_live_process(own_engine):
    process = own_engine.start("run", own_engine.write(WAIT), "--no-stdin", "--events")
    id = json.loads(process.stdout.readline())["process"]  # it knows of its launch
    os.kill(own_engine.card()["pid"], signal.SIGKILL)
    events = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert (events[-1]["event"], events[-1]["process"], events[-1]["exit"]) == ("error", id, 3)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("fail", "the engine could not start: the weights are damaged"),
        ("crash", "the worker ended while starting (exit status 7)"),
    ],
)
def test_a_worker_that_cannot_start_is_exit_3_with_its_reason(own_engine, behaviour, words):
    own_engine.extra["FAKE_WORKER"] = behaviour
    done = own_engine.run(HELLO)
    assert done.returncode == 3
    assert done.stdout == ""
    assert words in done.stderr and says_where_the_log_is(done.stderr, own_engine)
    del own_engine.extra["FAKE_WORKER"]
    assert own_engine.run(HELLO).returncode == 0


def test_ctrl_c_while_the_engine_loads_exits_130(own_engine):
    own_engine.extra["FAKE_WORKER"] = "slow"
    process = own_engine.start("run", own_engine.write(HELLO))
    wait_until(own_engine.card)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130


def test_serve_prints_one_ready_line_and_ends_with_ctrl_c(own_engine):
    server = own_engine.start("serve")
    ready = server.stdout.readline()
    assert ready.startswith("ready: `fake` on cpu (float32, 64 pages of 16 tokens), sandbox: ")
    (log,) = own_engine.home.glob("logs/*.log")
    assert ready.endswith(f", log: {log}\n")
    assert own_engine.run(HELLO).stderr == ""
    second = own_engine.pie("serve")
    assert second.returncode == 2 and "is running" in second.stderr
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert server.communicate() == ("", "")


WITHOUT_NAMESPACES = """
import errno, os, sys, seccompy
table = seccompy.Filter()
table.errno("unshare", errno.EPERM)
table.load()
os.execv(sys.executable, [sys.executable, "-m", "pie_cli", *sys.argv[1:]])
"""


def test_serve_refuses_a_tier_that_the_machine_does_not_give(own_engine):
    command = [sys.executable, "-c", WITHOUT_NAMESPACES, "serve", "--sandbox", "full"]
    done = subprocess.run(
        command, env=own_engine.environment, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 3
    assert "`--sandbox full`" in done.stderr and "unshare" in done.stderr


def test_an_unknown_model_exits_2_and_starts_nothing(own_engine):
    done = own_engine.run(HELLO, "--model", "nope")
    assert done.returncode == 2 and "nope" in done.stderr
    assert own_engine.card() is None


def test_a_long_home_still_has_sockets_that_fit(own_engine, tmp_path):
    home = tmp_path / ("x" * 90)
    home.mkdir()
    (home / "models").symlink_to(own_engine.home / "models")
    engine = Engine(home, {})
    try:
        assert engine.run(HELLO).stdout == '"hello"\n'
    finally:
        engine.pie("stop")


SPIN = """
from inferlet import session
def main(input):
    print("spinning", flush=True)
    while True:
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_busy_engine_and_leaves_nothing(own_engine, number):
    app = own_engine.write(SPIN)
    process = own_engine.start("run", app, "-n", 6, "--no-stdin")
    wait_until(lambda: len(own_engine.processes()) == 6)
    waiting = own_engine.start("run", own_engine.write(WAIT, "wait.py"), "--no-stdin")
    assert waiting.stderr.readline() == "waiting\n"
    hub = own_engine.card()["pid"]
    parts = [hub, *children(hub), *children(own_engine.engine_pid("zygote"))]
    os.kill(hub, number)
    assert process.wait(timeout=SECONDS) == waiting.wait(timeout=SECONDS) == 137
    assert "the engine was stopped" in waiting.communicate()[1]
    wait_until(lambda: all(map(is_gone, parts)))
    assert own_engine.card() is None
    names = {path.name for path in own_engine.home.glob("run/*/*")}
    assert names == {"lock", "start.lock"}


LAST_THINGS = """
import asyncio
from inferlet import session
async def main(input):
    print("waiting")
    try:
        await session.receive()
    except asyncio.CancelledError:
        await asyncio.sleep(0.2)
        return "saved"
"""


def test_what_runs_may_do_its_last_things_when_the_engine_is_stopped(own_engine):
    own_engine.run(HELLO)
    waiting = own_engine.start("run", own_engine.write(LAST_THINGS), "--no-stdin")
    assert waiting.stderr.readline() == "waiting\n"
    assert own_engine.pie("stop").returncode == 0
    assert waiting.wait(timeout=SECONDS) == 0
    assert waiting.communicate()[0] == '"saved"\n'


def test_a_second_stop_waits_for_nobody(own_engine):
    own_engine.run(HELLO)
    busy = own_engine.start("run", own_engine.write(SPIN), "--no-stdin")
    assert busy.stderr.readline() == "spinning\n"
    hub = own_engine.card()["pid"]
    os.kill(hub, signal.SIGTERM)
    wait_until(lambda: own_engine.card() is None)
    with suppress(ProcessLookupError):  # so much later that it has left
        os.kill(hub, signal.SIGTERM)
    assert busy.wait(timeout=SECONDS) == 137
    wait_until(lambda: is_gone(hub))


def test_the_log_has_a_line_an_event_with_time_process_and_client(own_engine):
    assert own_engine.run(HELLO, "--name", "greeter").returncode == 0
    (log,) = own_engine.home.glob("logs/*.log")

    def lines_of_ends() -> list[list[str]]:
        lines = [line.split() for line in log.read_text().splitlines()]
        return [line for line in lines if "ended" in line]

    (ended,) = wait_until(lines_of_ends)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ended[0])
    assert ended[1] == "info" and "process=greeter" in ended and "exit=0" in ended
    assert any(word.startswith("client=") for word in ended)


def test_launches_that_wait_can_be_seen_killed_and_their_names_are_taken(own_engine):
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (240, 240))

    app = own_engine.write(WAIT)
    words = ("-n", 60, "--no-stdin", "--keep-alive", 1)
    many = own_engine.start("run", app, *words, preexec_fn=few_descriptors)
    wait_until(lambda: sum(row["state"] == "running" for row in own_engine.processes()) == 60)
    queued = own_engine.start("run", app, "--no-stdin", "--name", "late")
    wait_until(lambda: any(row["state"] == "queued" for row in own_engine.processes()))
    again = own_engine.pie("run", app, "--name", "late")
    assert again.returncode == 2 and "`late` is in use" in again.stderr
    assert own_engine.pie("kill", "late").returncode == 0
    assert queued.wait(timeout=SECONDS) == 137
    assert "as many as it may have" in queued.communicate()[1]
    next_one = own_engine.start("run", app, "--no-stdin", "--name", "late")
    wait_until(lambda: any(row["id"] == "late" for row in own_engine.processes()))
    first = next(row["id"] for row in own_engine.processes() if row["id"] != "late")
    own_engine.pie("kill", first)
    assert next_one.stderr.readline()  # the notice
    wait_until(
        lambda: any(
            (row["id"], row["state"]) == ("late", "running") for row in own_engine.processes()
        )
    )
    own_engine.pie("kill", *(row["id"] for row in own_engine.processes()))
    assert many.wait(timeout=SECONDS) == 137
    wait_until(lambda: own_engine.card() is None)  # none is left that would keep it


def test_ids_are_unique_over_the_engines_of_a_home(own_engine):
    shutil.copytree(own_engine.home / "models/fake", own_engine.home / "models/other")
    app = own_engine.write(WAIT)
    words = ("run", app, "--detach", "--model")
    ids = [own_engine.pie(*words, model).stdout.strip() for model in ("fake", "other")]
    assert len(set(ids)) == 2 and all(ids)
    assert own_engine.pie(*words, "fake", "--name", "mine").returncode == 0
    refused = own_engine.pie(*words, "other", "--name", "mine")
    assert refused.returncode == 2 and "`mine` is in use" in refused.stderr
    assert own_engine.pie("kill", "mine").returncode == 0
    assert own_engine.pie(*words, "other", "--name", "mine").returncode == 0


def test_a_name_of_a_killed_engine_is_free_at_once(own_engine):
    app = own_engine.write(WAIT)
    words = ("run", app, "--detach", "--name", "mine")
    assert own_engine.pie(*words).returncode == 0
    os.kill(own_engine.card()["pid"], signal.SIGKILL)
    assert own_engine.pie(*words).returncode == 0
