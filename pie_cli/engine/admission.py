"""Which launches may start now, and which wait for room on this machine. Starts none itself.

Higher priorities first, then by arrival. One process may always live, even without memory for it.
"""

import asyncio
import bisect
from collections.abc import Callable
from pathlib import Path

from ipc import client as c
from pie_cli.engine.process import Process

MAX_QUEUED = 10_000
MAX_QUEUED_BYTES = 1 << 30  # of what was attached to them
RESERVE = 0.04  # of the machine's memory that is left to others
RETRY_SECONDS = 0.25  # until memory is looked at again
NOTICE_SECONDS = 0.5  # between notices of positions
NOTICED = 100  # launches at the head of the queue, which are told that they have moved up


def has_memory() -> bool:
    """Whether this machine has memory for one more process."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return True
    sizes = {key: int(text.partition(f"{key}:")[2].split()[0]) for key in _MEMORY_KEYS}
    return sizes["MemAvailable"] > RESERVE * sizes["MemTotal"]


_MEMORY_KEYS = ("MemTotal", "MemAvailable")


class Admission:
    """The queue of launches. `check` is to be called whenever a process has gone."""

    def __init__(
        self,
        max_processes: int,
        start: Callable[[Process], None],
        tell: Callable[[Process, c.Queued], None],
        memory: Callable[[], bool] = has_memory,
    ) -> None:
        """`start` may be called at once. `tell`: a notice for the process's client."""
        self.max_processes = max_processes
        self._start, self._tell, self._has_memory = start, tell, memory
        self._queue: list[Process] = []
        self._bytes = 0
        self.num_live = 0  # started, not gone
        self._retry: asyncio.TimerHandle | None = None
        self._notice: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def refusal(self, size: int) -> tuple[str, str] | None:
        """Why a launch with so many bytes attached cannot even wait, and what to do."""
        if not self._queue:
            return None
        hint = "launch fewer at once, or end some: `pie ps`, `pie kill ID`"
        if len(self._queue) >= MAX_QUEUED:
            return f"{len(self._queue):,} launches wait already, as many as may", hint
        if self._bytes + size > MAX_QUEUED_BYTES:
            return f"the launches that wait hold {self._bytes:,} bytes of files already", hint
        return None

    def submit(self, process: Process) -> None:
        """Start it now, or let it wait for its turn."""
        if not self._queue and not self._obstacle():
            self._begin(process)
            return
        index = bisect.bisect(self._queue, _order(process), key=_order)
        self._queue.insert(index, process)
        self._bytes += attached_size(process.run)
        process.position = index + 1
        self._announce(process)
        self.check()

    def leave(self, process: Process) -> None:
        """It has ended while it waited."""
        if process.position is not None:
            self._remove(process)

    def gone(self) -> None:
        """A process that was started is gone."""
        self.num_live -= 1
        self.check()

    def check(self) -> None:
        """Start what there is room for."""
        while self._queue and not self._obstacle():
            process = self._queue[0]
            self._remove(process)
            self._begin(process)
        if self._queue and not self._retry:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._check_again)

    def number(self) -> None:
        """Bring the positions of all that wait up to date."""
        for position, process in enumerate(self._queue, 1):
            process.position = position

    def close(self) -> None:
        for timer in (self._retry, self._notice):
            if timer:
                timer.cancel()

    def _obstacle(self) -> str:
        """Why none can start now."""
        if self.num_live >= self.max_processes:
            return f"the engine has {self.max_processes:,} live processes, as many as it may have"
        if self.num_live and not self._has_memory():
            return "the machine's memory is used up"
        return ""

    def _begin(self, process: Process) -> None:
        self.num_live += 1
        self._start(process)

    def _remove(self, process: Process) -> None:
        self._queue.remove(process)
        self._bytes -= attached_size(process.run)
        process.position = None
        if self._queue and not self._notice:
            loop = asyncio.get_running_loop()
            self._notice = loop.call_later(NOTICE_SECONDS, self._announce_all)

    def _announce(self, process: Process) -> None:
        process.announced = process.position
        notice = c.Queued(process.run.request, process.id, process.position, self._obstacle())
        self._tell(process, notice)

    def _announce_all(self) -> None:
        self._notice = None
        for position, process in enumerate(self._queue[:NOTICED], 1):
            process.position = position
            if process.announced != process.position:
                self._announce(process)

    def _check_again(self) -> None:
        self._retry = None
        self.check()


def attached_size(run: c.Run) -> int:
    """Bytes that a launch holds while it waits."""
    return sum(map(len, run.files.values())) + len(run.source) + len(run.input)


def _order(process: Process) -> tuple[int, int]:
    return -process.run.priority, process.number
