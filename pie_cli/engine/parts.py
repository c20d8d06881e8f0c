"""The parts of an engine besides the hub: the worker, and the zygote in its sandbox.

Starts them, starts them anew when they end, and gives up when that happens too often. Knows no
processes and no clients.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from ipc import client as c
from ipc import messages as m
from ipc.types import Limits
from pie_cli.engine.journal import Journal
from pie_cli.engine.launcher import Launcher, LaunchError
from pie_cli.engine.worker_process import WorkerOptions, WorkerProcess
from pie_cli.sandbox import selftest

ZYGOTE_STARTS = 3  # in a row that may fail before the engine gives up
MAX_DEATHS = 3  # of one part within DEATH_SECONDS; one more ends the engine
DEATH_SECONDS = 120.0


@dataclass(frozen=True)
class EngineEnd:
    """Why the engine left. `failure` is empty when it was asked to, or idle."""

    failure: str = ""
    hint: str = ""


@dataclass(frozen=True)
class PartOptions:
    """What the parts are started with."""

    worker: WorkerOptions
    worker_address: str
    log_path: str
    sandbox: str  # "auto" | "full" | "none"
    limits: Limits


class Events(Protocol):
    """What the hub does about the parts."""

    def on_progress(self, progress: c.Progress) -> None: ...
    def on_ready(self) -> None:
        """All parts are up for the first time."""

    def on_up(self) -> None:
        """All parts are up, for the first time or again."""

    def on_stats(self, stats: m.ProcessStats) -> None: ...
    def on_events(self, number: int, events: bytes) -> None: ...
    def on_worker_room(self) -> None:
        """The worker takes commands again."""

    def on_worker_lost(self, how: str) -> None:
        """A new one is starting already: what is relayed from now on is for it."""

    def on_zygote_lost(self) -> None:
        """All processes are gone; a new one is starting."""

    def on_failure(self, end: EngineEnd) -> None:
        """The engine cannot go on."""


class Deaths:
    """Counts deaths of one part."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._times: deque[float] = deque(maxlen=MAX_DEATHS)

    def add(self) -> bool:
        """Whether these are too many within a short time."""
        now = self._time()
        is_too_many = len(self._times) == MAX_DEATHS and now - self._times[0] < DEATH_SECONDS
        self._times.append(now)
        return is_too_many


def choose_tier(sandbox: str) -> selftest.Tier:
    """The tier to launch with. Raises SandboxUnavailable; blocks while a probe runs."""
    return selftest.choose(unsafe_no_sandbox=sandbox == "none", only_full=sandbox == "full")


class Parts:
    """Made inside a running loop; starts at once."""

    def __init__(self, options: PartOptions, journal: Journal, events: Events) -> None:
        self._options, self._journal, self._events = options, journal, events
        self._loop = asyncio.get_running_loop()
        self.ready: m.Ready | None = None  # the worker's newest
        self.stats: m.ProcessStats | None = None
        self.sandbox = ""
        self.worker_starts = self.zygote_starts = 0
        self._was_ready = False
        self._closing = False
        self._worker_up, self._zygote_up = asyncio.Event(), asyncio.Event()
        self._worker_deaths, self._zygote_deaths = Deaths(self._loop.time), Deaths(self._loop.time)
        self._tasks: set[asyncio.Task] = set()
        self.worker = self._new_worker()
        self.launcher = Launcher("", None, None)  # cannot launch: the tier is not known yet
        self._spawn(self._start_sandbox())

    @property
    def are_up(self) -> bool:
        return self._worker_up.is_set() and self._zygote_up.is_set()

    @property
    def has_worker(self) -> bool:
        """One that takes commands now."""
        return self._worker_up.is_set() and not self.worker.is_full

    async def until_up(self) -> None:
        while not self.are_up:
            await self._worker_up.wait()
            await self._zygote_up.wait()

    def cancel(self) -> None:
        """Start nothing more."""
        self._closing = True
        for task in self._tasks:
            task.cancel()

    async def close_launcher(self) -> None:
        await self.launcher.close()

    async def close_worker(self) -> None:
        await self.worker.close()

    def _spawn(self, work: Coroutine) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check_up(self) -> None:
        if not self.are_up:
            return
        if not self._was_ready:
            self._was_ready = True
            self._events.on_ready()
        self._events.on_up()

    # ---- the zygote

    async def _start_sandbox(self) -> None:
        try:
            tier = await asyncio.to_thread(choose_tier, self._options.sandbox)
        except selftest.SandboxUnavailable as error:
            self._events.on_failure(EngineEnd(str(error), error.hint))
            return
        self.sandbox = tier.description
        self._journal.info("sandbox", tier=tier.name, description=tier.description)
        self.launcher = Launcher(
            tier.name, self._options.worker.model_path, self._options.log_path,
            on_death=self._on_zygote_death, spare_limits=self._options.limits,
        )  # fmt: skip
        await self._start_zygote()

    async def _start_zygote(self) -> None:
        for attempt in range(ZYGOTE_STARTS):
            self.zygote_starts += 1
            try:
                await self.launcher.start()
            except LaunchError as error:
                self._journal.error("zygote-start-failed", attempt=attempt + 1, reason=str(error))
                failure = str(error)
            else:
                self._journal.info("zygote-ready", pid=self.launcher.zygote_pid)
                self._zygote_up.set()
                self._check_up()
                return
        self._events.on_failure(EngineEnd(f"the sandbox could not start: {failure}"))

    def _on_zygote_death(self) -> None:
        self._journal.error("zygote-ended")
        self._zygote_up.clear()
        self._events.on_zygote_lost()
        if self._closing:
            return
        if self._zygote_deaths.add():
            text = f"the sandbox's zygote ended {MAX_DEATHS + 1} times within {DEATH_SECONDS:.0f} s"
            self._events.on_failure(EngineEnd(text))
            return
        self._spawn(self._start_zygote())

    # ---- the worker

    def _new_worker(self) -> WorkerProcess:
        self.worker_starts += 1
        options = self._options
        worker = WorkerProcess(
            options.worker, options.worker_address, options.log_path,
            self._on_report, self._events.on_events, self._on_worker_death,
            self._events.on_worker_room,
        )  # fmt: skip
        self._journal.info("worker-started", pid=worker.pid)
        return worker

    def _on_report(self, report: m.WorkerReport) -> None:
        match report:
            case m.Loading(fraction, text):
                self._events.on_progress(c.Progress(min(fraction, 0.99), text))
            case m.Ready():
                self.ready = report
                self._worker_up.set()
                self._journal.info("worker-ready", **report.timings)
                self._check_up()
            case m.LoadFailed(message, hint):
                self._events.on_failure(EngineEnd(f"the engine could not start: {message}", hint))
            case m.ProcessStats():
                self.stats = report
                self._events.on_stats(report)

    def _on_worker_death(self, how: str) -> None:
        was_up = self._worker_up.is_set()
        self._journal.error("worker-ended", how=how, ready=was_up)
        self._worker_up.clear()
        self.stats = None
        if self._closing:
            return
        if self.ready is None:  # it never was: the next one would fare no better
            self._events.on_failure(EngineEnd(f"the worker ended while starting ({how})"))
        elif self._worker_deaths.add():
            text = f"the worker ended unexpectedly ({how}), for the {MAX_DEATHS + 1}th time"
            self._events.on_failure(EngineEnd(f"{text} within {DEATH_SECONDS:.0f} s"))
        else:
            self._spawn(self._restart_worker(how))

    async def _restart_worker(self, how: str) -> None:
        await self.worker.close()  # which waits for nobody, since it is gone
        self.worker = self._new_worker()
        self._events.on_worker_lost(how)
