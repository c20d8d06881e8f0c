"""The worker's link when what comes over it is no message of the worker's."""

import os
import signal
from pathlib import Path

import pytest
import zmq

from ipc import codec
from ipc import messages as m
from tests.cli.fault_stages import STAGES
from tests.cli.fault_worker import GARBAGE, GARBLE, ready
from tests.cli.faults import Bystander, FaultyEngine, assert_ends
from tests.cli.test_faults import LOG

QUICK = ("garbage", "too few parts", "leaves the link")  # each costs a worker, and two an engine
BREAKS = [
    pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow, id=kind.replace(" ", "_"))
    for kind in (*GARBAGE, "leaves the link")
]


@pytest.mark.parametrize("kind", BREAKS)
def test_a_worker_that_cannot_be_read_is_replaced_and_the_reason_is_told(faulty, kind):
    bystander = Bystander(faulty.engine)
    run = faulty.run(STAGES["decoding"].source)
    run.inner_pid()
    hub, worker = faulty.pid_of("hub"), faulty.pid_of("worker")
    (faulty.home / GARBLE).write_text(kind)
    faulty.engine.run("def main(): pass")  # the worker hears of it
    faulty.wait_until_gone({worker})
    faulty.count_death()
    why = "its link broke off" if kind == "leaves the link" else r"it sent what the engine cannot read: .*"
    words = rf"error: the worker ended unexpectedly \({why}\), and the process with it; "
    assert_ends(run, (3, rf"{words}the engine starts a new one; {LOG}\n"))
    bystander.check()
    bystander.client.close()
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())
    assert "Traceback" not in log_of(faulty)


def log_of(faulty: FaultyEngine) -> str:
    return max(faulty.home.glob("logs/*.log"), key=os.path.getmtime).read_text()


@pytest.fixture
def impostor(faulty: FaultyEngine):
    """Another process of the same user, or so it is to the hub: this one."""
    (path,) = faulty.home.glob("run/*/worker.sock")
    with zmq.Context() as context, context.socket(zmq.PAIR) as made:
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RECONNECT_IVL, 1)
        made.connect(f"ipc://{short(path)}")
        yield made


def short(path: Path) -> str:
    folder = os.open(path.parent, os.O_RDONLY)
    return f"/proc/{os.getpid()}/fd/{folder}/{path.name}"


def speak(impostor: zmq.Socket) -> None:
    for parts in [*GARBAGE.values(), [codec.encode(([ready("other", "/nowhere")], []))],
                  [codec.encode(([m.LoadFailed("no", "never")], []))]]:  # fmt: skip
        impostor.send_multipart(parts, zmq.NOBLOCK)


def test_who_pretends_to_be_a_worker_is_not_heard(faulty: FaultyEngine, impostor: zmq.Socket):
    """Neither beside the worker, nor in the moment when there is none."""
    hub, worker = faulty.pid_of("hub"), faulty.pid_of("worker")
    bystander = Bystander(faulty.engine)
    speak(impostor)
    faulty.kill("worker", worker, signal.SIGKILL)
    speak(impostor)
    faulty.wait_until_gone({worker})
    faulty.hello()
    bystander.check()
    bystander.client.close()
    faulty.check_nothing_is_left(hub=hub, survives=True, before=set())
    assert "Traceback" not in log_of(faulty)
