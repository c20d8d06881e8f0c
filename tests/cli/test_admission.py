"""Which launches start, in which order, and what those that wait are told."""

import asyncio
from dataclasses import dataclass, field

from ipc import client as c
from pie_cli.engine import admission
from pie_cli.engine.admission import Admission


@dataclass
class Waiting:
    """As much of a process as the queue knows."""

    number: int
    run: c.Run
    position: int | None = None
    announced: int | None = None

    @property
    def id(self) -> str:
        return f"p{self.number}"


@dataclass
class Host:
    """A queue, what it started and what it told."""

    max_processes: int = 2
    has_memory: bool = True
    started: list[int] = field(default_factory=list)
    told: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Admission(
            self.max_processes,
            lambda process: self.started.append(process.number),
            lambda process, notice: self.told.append((process.number, notice.position)),
            lambda: self.has_memory,
        )
        self.made: list[Waiting] = []

    def submit(self, priority: int = 0, **fields) -> Waiting:
        number = len(self.made) + 1
        run = c.Run(number, "a", "", {}, "{}", fields.get("files", {}), priority=priority)
        self.made.append(Waiting(number, run))
        self.queue.submit(self.made[-1])
        return self.made[-1]


def in_loop(test):
    def run():
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_launches_start_at_once_until_there_are_too_many():
    host = Host()
    for _ in range(4):
        host.submit()
    assert host.started == [1, 2] and host.told == [(3, 1), (4, 2)]
    host.queue.gone()
    host.queue.number()
    assert host.started == [1, 2, 3] and host.made[3].position == 1
    host.queue.close()


@in_loop
async def test_higher_priorities_go_first_then_earlier_launches():
    host = Host(max_processes=1)
    for priority in (0, 0, 5, -1, 5):
        host.submit(priority)
    for _ in range(4):
        host.queue.gone()
    assert host.started == [1, 3, 5, 2, 4]
    host.queue.close()


@in_loop
async def test_without_memory_one_may_live_and_the_others_wait_until_there_is_some():
    host = Host(has_memory=False)
    host.submit()
    host.submit()
    assert host.started == [1]
    host.has_memory = True
    async with asyncio.timeout(20):
        while len(host.started) < 2:
            await asyncio.sleep(0.01)
    host.queue.close()


@in_loop
async def test_a_launch_that_ended_while_it_waited_leaves_the_queue():
    host = Host(max_processes=1)
    for _ in range(3):
        host.submit()
    host.queue.leave(host.made[1])
    host.queue.leave(host.made[0])  # not in it: nothing happens
    host.queue.gone()
    assert host.started == [1, 3] and len(host.queue) == 0
    host.queue.close()


@in_loop
async def test_those_that_move_up_are_told_once_in_a_while():
    host = Host(max_processes=1)
    for _ in range(4):
        host.submit()
    host.told.clear()
    host.queue.gone()
    host.queue.gone()
    async with asyncio.timeout(20):
        while not host.told:
            await asyncio.sleep(0.01)
    assert host.told == [(4, 1)], "the newest position alone"
    host.queue.close()


@in_loop
async def test_a_queue_has_a_bound_of_launches_and_of_bytes():
    host = Host(max_processes=1)
    assert host.queue.refusal(1 << 40) is None, "nothing waits"
    host.submit()
    host.submit(files={"f": b"x" * 100})
    most, most_bytes = admission.MAX_QUEUED, admission.MAX_QUEUED_BYTES
    try:
        admission.MAX_QUEUED_BYTES = 200
        assert host.queue.refusal(50) is None
        assert "hold" in host.queue.refusal(150)[0]
        admission.MAX_QUEUED = 1
        message, hint = host.queue.refusal(0)
        assert "1 launches wait" in message and "pie kill" in hint
    finally:
        admission.MAX_QUEUED, admission.MAX_QUEUED_BYTES = most, most_bytes
    host.queue.close()


@in_loop
async def test_ten_thousand_launches_wait_and_start_in_order():
    host = Host(max_processes=1)
    for number in range(10_000):
        host.submit(priority=number % 3)
    while len(host.queue):
        host.queue.gone()
    assert len(host.started) == 10_000 and host.started[1:4] == [3, 6, 9]
    host.queue.close()


def test_this_machine_has_memory_for_a_process():
    assert admission.has_memory()
