"""The engine as a process of its own, over the real link, with the tiny model."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipc import messages as m
from ipc.transport import ZmqLink
from ipc.types import Limits

ROOT = Path(__file__).parents[2]
SECONDS = 240.0  # for a start-up, on a slow and busy machine


def command(address: str, *more: str) -> list[str]:
    words = ["--link", address, "--model-path", "tiny", "--model-name", "t", *more]
    return [sys.executable, "-m", "worker", *words]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[ZmqLink, str]]:
    address = f"ipc://{tmp_path}/w"
    link = ZmqLink(address, bind=True, is_hub=True)
    yield link, address
    link.close()


@contextmanager
def started(words: list[str], **options: object) -> Iterator[subprocess.Popen]:
    """A process that is gone at the end, also when the test fails."""
    with subprocess.Popen(words, cwd=ROOT, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def receive(link: ZmqLink) -> tuple[list, list]:
    assert link.wait(SECONDS), "the engine is silent"
    return link.receive()


def reports_until(link: ZmqLink, kind: type) -> list:
    seen: list = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if link.wait(1.0):
            seen += link.receive()[0]
            if isinstance(seen[-1], kind):
                return seen
    raise AssertionError(f"no {kind.__name__} among {seen}")


def test_an_engine_loads_serves_and_ends_when_told(hub: tuple[ZmqLink, str]) -> None:
    link, address = hub
    with started(command(address, "--kv-bytes", "1000000")) as process:
        *loading, ready = reports_until(link, m.Ready)
        assert loading and all(isinstance(report, m.Loading) for report in loading)
        assert ready.model.name == "t"
        assert set(ready.timings) == {"import", "load", "warm_up"}
        assert ready.engine.num_pages > 100 and ready.engine.device == "cpu"
        (idle,) = reports_until(link, m.ProcessStats)
        assert (idle.waves, idle.processes, idle.pages_free) == (0, {}, idle.pages_total)
        link.send([m.ProcessStarted(1, Limits())], [])
        *_, told = reports_until(link, m.ProcessStats)
        assert (told.waves, told.processes) == (0, {1: (0, 0, 0)})
        link.send([], [(1, b"nonsense")])
        while not (batches := receive(link)[1]):
            pass
        ((number, _),) = batches
        assert number == 1
        link.send([m.Shutdown()], [])
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_termination_ends_it_orderly_and_an_interrupt_not_at_all(
    hub: tuple[ZmqLink, str], number: signal.Signals
) -> None:
    link, address = hub
    with started(command(address)) as process:
        reports_until(link, m.Ready)
        process.send_signal(number)
        if number == signal.SIGINT:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.terminate()
        assert process.wait(SECONDS) == 0


def test_a_model_that_cannot_be_loaded_is_reported_with_a_hint(hub: tuple[ZmqLink, str]) -> None:
    link, address = hub
    small = command(address, "--kv-bytes", "10")
    with started(small, stderr=subprocess.DEVNULL) as process:
        failed = reports_until(link, m.LoadFailed)[-1]
        assert "10 bytes" in failed.message
        assert "--kv-bytes" in failed.hint
        assert process.wait(SECONDS) == 3


def test_it_never_outlives_the_hub(hub: tuple[ZmqLink, str]) -> None:
    link, address = hub
    code = (
        "import subprocess, sys, time\n"
        f"worker = subprocess.Popen({command(address)!r})\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with started([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        reports_until(link, m.Ready)
        parent.kill()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and _is_running(pid):
        time.sleep(0.05)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # nobody may be there to reap it
