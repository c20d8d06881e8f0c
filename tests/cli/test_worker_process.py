"""The worker's process and the link, from the hub's side."""

import asyncio
import os
import signal
from unittest.mock import Mock

import pytest

from ipc import messages as m
from ipc.types import Limits
from pie_cli.engine.worker_process import WorkerOptions, WorkerProcess
from tests.cli.conftest import ROOT, SECONDS, is_gone


class Heard:
    """A worker, and what it said. Made in a running loop."""

    def __init__(self, folder) -> None:
        self.reports, self.batches, self.deaths = [], [], []
        self.log = str(folder / "log")
        self.worker = WorkerProcess(
            WorkerOptions("tests.cli.fake_worker", "fake", "/nowhere"),
            f"ipc://{folder}/w.sock", self.log,
            self.reports.append, lambda *batch: self.batches.append(batch), self.deaths.append,
        )  # fmt: skip

    async def until(self, condition) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    async def ready(self) -> None:
        await self.until(lambda: any(isinstance(x, m.Ready) for x in self.reports))


@pytest.fixture(autouse=True)
def packages(monkeypatch, clean_environment):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_all_that_is_sent_in_one_turn_of_the_loop_is_one_message(clean_environment):
    async def run():
        heard = Heard(clean_environment)
        await heard.ready()
        heard.worker.relay(1, b"a")
        heard.worker.relay(2, b"b")
        heard.worker.relay(1, b"c")
        heard.worker.notify(m.ProcessStarted(1, Limits()))
        await heard.until(lambda: len(heard.batches) == 3)
        assert heard.batches == [(1, b"a"), (2, b"b"), (1, b"c")]
        assert heard.worker.link.sent == 1
        heard.worker.relay(2, b"d")
        await heard.until(lambda: len(heard.batches) == 4)
        assert heard.worker.link.sent == 2
        await heard.worker.close()
        assert is_gone(heard.worker.pid) and heard.deaths == []

    asyncio.run(run())


def test_the_death_of_the_worker_is_told_once_and_sends_do_not_wait(clean_environment):
    async def run():
        heard = Heard(clean_environment)
        await heard.ready()
        os.kill(heard.worker.pid, signal.SIGKILL)
        await heard.until(lambda: heard.deaths)
        heard.worker.relay(1, b"a")
        await asyncio.sleep(0.05)
        assert heard.deaths == ["SIGKILL"]
        await heard.worker.close()

    asyncio.run(run())


def test_a_worker_that_still_loads_is_ended_at_once(clean_environment, monkeypatch):
    monkeypatch.setenv("FAKE_WORKER", "slow")

    async def run():
        heard = Heard(clean_environment)
        await heard.until(lambda: heard.reports)
        await heard.worker.close()
        assert is_gone(heard.worker.pid)
        assert not any(isinstance(report, m.Ready) for report in heard.reports)

    asyncio.run(run())


def test_what_is_sent_before_the_worker_is_ready_goes_out_when_it_is(clean_environment):
    async def run():
        heard = Heard(clean_environment)
        heard.worker.relay(1, b"a")
        heard.worker.relay(2, b"b")
        await heard.until(lambda: len(heard.batches) == 2)
        assert heard.batches == [(1, b"a"), (2, b"b")]
        assert any(isinstance(report, m.Ready) for report in heard.reports)
        await heard.worker.close()
        await heard.worker.close()

    asyncio.run(run())


def test_a_worker_for_which_much_waits_is_full_until_it_has_read(clean_environment):
    """A stopped one, for one: the hub would keep all that its processes send."""

    async def run():
        heard = Heard(clean_environment)
        rooms = heard.worker._on_room = Mock()
        await heard.ready()
        os.kill(heard.worker.pid, signal.SIGSTOP)
        for _ in range(20):
            heard.worker.relay(1, bytes(4 << 20))
            await asyncio.sleep(0)
        assert heard.worker.is_full and not rooms.called
        os.kill(heard.worker.pid, signal.SIGCONT)
        await heard.until(lambda: rooms.called)
        assert not heard.worker.is_full
        await heard.until(lambda: len(heard.batches) == 20)
        await heard.worker.close()

    asyncio.run(run())
