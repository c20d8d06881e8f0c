"""Parts that are stopped instead of killed: they hold up nobody, and nothing outlives the engine."""

import os
import signal
from contextlib import suppress

import pytest

from tests.cli.fault_stages import STAGES
from tests.cli.faults import Bystander, FaultyEngine, assert_ends, descendants, stop
from tests.cli.test_faults_launch import KILLED, STOPPED

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


@pytest.mark.slow
def test_no_process_of_an_engine_outlives_one_with_a_stopped_zygote(faulty: FaultyEngine):
    run = faulty.run(RECEIVING)
    run.inner_pid()
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    stop(faulty.pid_of("zygote"))
    assert faulty.engine.pie("stop").returncode == 0
    assert_ends(run, STOPPED)
    faulty.check_nothing_is_left(hub=hub, survives=False, before=before)
