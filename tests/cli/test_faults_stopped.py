"""Parts that are stopped instead of killed: they hold up nobody, and nothing outlives the engine."""

import os
import signal
import time
from contextlib import suppress

import pytest

from pie_cli.engine.reports import resident_bytes
from tests.cli import fault_worker
from tests.cli.conftest import wait_until
from tests.cli.fault_stages import HELLO, STAGES
from tests.cli.faults import Bystander, FaultyEngine, assert_ends, descendants, stop
from tests.cli.test_faults import GOES_ON
from tests.cli.test_faults_launch import KILLED, STOPPED
from tests.cli.test_hostile_clients import cpu_seconds

KILL, CONT = signal.SIGKILL, signal.SIGCONT
RECEIVING = STAGES["receiving"].source


def test_a_stopped_client_holds_up_its_process_and_nobody_else(faulty: FaultyEngine):
    bystander = Bystander(faulty.engine)
    run = faulty.run(STAGES["sending"].source)
    run.inner_pid()
    hub = faulty.pid_of("hub")
    stop(run.process.pid)
    bystander.check()
    bystander.client.close()
    os.kill(run.process.pid, KILL)
    run.process.wait()
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


@pytest.mark.parametrize("part", ["inferlet", "worker"])
def test_a_process_ends_by_pie_kill_whatever_part_is_stopped(faulty: FaultyEngine, part):
    bystander = Bystander(faulty.engine)
    run = faulty.run(STAGES["decoding"].source)
    hub = faulty.pid_of("hub")
    run.inner_pid()
    pid = faulty.pid_of(part, run)
    stop(pid)
    assert faulty.engine.pie("kill", "victim").returncode == 0
    assert_ends(run, KILLED)
    bystander.check()
    bystander.client.close()
    with suppress(ProcessLookupError):
        os.kill(pid, CONT)
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


def test_pie_kill_says_that_a_stopped_zygote_has_not_told_of_the_end(faulty: FaultyEngine):
    run = faulty.run(RECEIVING)
    run.inner_pid()
    hub, zygote = faulty.pid_of("hub"), faulty.pid_of("zygote")
    stop(zygote)
    done = faulty.engine.pie("kill", "victim")
    os.kill(zygote, CONT)
    assert done.returncode == 3
    told = f"`victim` has not ended yet: its zygote (process {zygote}) is stopped"
    assert done.stderr.startswith(f"error: {told}\n\nhint: `kill -CONT {zygote}` lets it go on")
    assert_ends(run, KILLED)
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


@pytest.mark.parametrize("part", ["hub", "worker", "zygote"])
def test_pie_stop_ends_an_engine_with_a_stopped_part(faulty: FaultyEngine, part):
    """It is woken first: so it leaves as ever, and its processes hear of it."""
    run = faulty.run(RECEIVING)
    run.inner_pid()
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    stop(faulty.pid_of(part))
    done = faulty.engine.pie("stop")
    assert (done.returncode, done.stderr) == (0, "")
    assert_ends(run, STOPPED)
    faulty.check_nothing_is_left(hub=hub, survives=False, before=before)


@pytest.mark.parametrize("words", [("ps",), ("kill", "1"), ("send", "1", "x"), ("logs", "1")])
def test_a_verb_says_that_the_engine_is_stopped_and_what_to_do(faulty: FaultyEngine, words):
    hub = faulty.pid_of("hub")
    stop(hub)
    done = faulty.engine.pie(*words)
    os.kill(hub, CONT)
    assert done.returncode == 3
    assert f"its hub (process {hub}) is stopped" in done.stderr
    assert f"hint: `kill -CONT {hub}` lets it go on; `pie stop` ends the engine" in done.stderr
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


def test_a_run_waits_for_a_stopped_engine_says_so_and_goes_on(faulty: FaultyEngine):
    hub = faulty.pid_of("hub")
    stop(hub)
    run = faulty.run(RECEIVING, name="late")
    wait_until(lambda: f"(process {hub}) is stopped" in run.err.read_text())
    assert run.process.poll() is None
    os.kill(hub, CONT)
    run.inner_pid()
    assert faulty.engine.pie("kill", "late").returncode == 0
    assert_ends(run, KILLED)
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


@pytest.mark.parametrize("part", ["hub", "worker", "zygote"])
def test_a_run_says_once_that_a_part_is_stopped_and_goes_on(faulty: FaultyEngine, part):
    run = faulty.run(RECEIVING)
    run.inner_pid()
    hub, pid = faulty.pid_of("hub"), faulty.pid_of(part)
    stop(pid)
    wait_until(lambda: f"its {part} (process {pid}) is stopped" in run.err.read_text())
    os.kill(pid, CONT)
    assert faulty.engine.pie("send", "victim", "end", "--client", "me").returncode == 0
    assert_ends(run, GOES_ON, '"done"\n')
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())


def test_a_run_that_is_stopped_while_it_starts_the_engine_holds_up_no_other(faulty: FaultyEngine):
    """As with Ctrl-Z: whoever comes later takes the engine that it has started."""
    faulty.stop()
    (faulty.home / fault_worker.HOLD).touch()
    first = faulty.run(HELLO, name="first")
    hub = faulty.pid_of("hub")
    stop(first.process.pid)
    second = faulty.run(HELLO, name="second")
    (faulty.home / fault_worker.HOLD).unlink()
    assert_ends(second, (0, ""), '"hello"\n')
    os.kill(first.process.pid, CONT)
    assert_ends(first, (0, "starting the engine with `fake`\n"), '"hello"\n')
    assert faulty.engine.card()["pid"] == hub


def test_what_a_flood_sends_to_a_stopped_worker_does_not_fill_the_hub(faulty: FaultyEngine):
    """It waits in the processes; what they sent arrives once the worker goes on."""
    hub, worker = faulty.pid_of("hub"), faulty.pid_of("worker")
    source = """
import asyncio, os, socket
from inferlet import session
from inferlet.runtime import handles
from ipc import codec, frames
async def main(input):
    own = socket.socket(fileno=os.dup(handles.current().outbox._write.__self__._fd))
    own.setblocking(False)
    session.send(f"here {os.getpid()}\\n")
    data, loop = frames.pack(frames.ENGINE, codec.encode([bytes(1 << 20)])), asyncio.get_running_loop()
    for _ in range(80):
        await loop.sock_sendall(own, data)
    return "done"
"""
    stop(worker)
    before = resident_bytes(hub)
    runs = [faulty.run(source, name=f"flood{i}") for i in range(4)]
    for run in runs:
        run.inner_pid()
    most, last = 0, -1.0
    while (now := cpu_seconds(hub)) != last or most < before + (32 << 20):  # until it has no more to do
        last = now
        most = max(most, resident_bytes(hub))
        time.sleep(0.3)
    assert most - before < 200 << 20
    os.kill(worker, CONT)
    for run in runs:
        assert_ends(run, GOES_ON, '"done"\n')
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())
