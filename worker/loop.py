"""The engine's loop. It never waits for an inferlet: a lane whose input is missing is not ready."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable

from ipc.errors import ErrorCode, Failure
from ipc.transport import Link
from worker import settle
from worker.channels import DeviceRings
from worker.config import Config
from worker.launch import Launched, Launcher
from worker.model.base import Model
from worker.outbox import Outbox
from worker.pacing import Pace
from worker.pages import PagePool
from worker.scheduler import Scheduler
from worker.server import Server
from worker.state import Pipeline, State, Wave


def calm_collector() -> None:
    """Waves make many objects that live for a wave or a window, and hardly a cycle: collecting as
    often as Python does by default would take most of the time of a wave of a thousand lanes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


class Engine:
    """One model, and everything that inferlets have on it."""

    def __init__(
        self,
        model: Model,
        num_pages: int,
        link: Link,
        config: Config | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or Config()
        self.clock = clock
        self.link = link
        rings = DeviceRings(model.device)
        pool = PagePool(num_pages, model.page_size)
        self.state = State(model.info, pool, rings, self.config)
        self.state.retire = self._retire
        self.server = Server(self.state, link)
        self.scheduler = Scheduler(self.state)
        self.launcher = Launcher(self.state, model, rings)
        self.outbox = Outbox(self.state, link)
        # Oldest first: (what is on its way, its wave, when it was launched).
        self.launched: deque[tuple[Launched, Wave, float]] = deque()
        scheduler = self.scheduler
        self.pace = Pace(scheduler.row_budget, scheduler.min_chunk, scheduler.decode_rows)
        scheduler.prompt_rows = self.pace.prompt_rows
        self._last_retired = clock()
        self._patient_until = 0.0
        self._last_progress = clock()
        self._last_launch = clock()

    def run(self) -> None:
        """Until the hub says so."""
        calm_collector()
        while not self.server.stopping:
            if not self.step() and not self.server.stopping:
                self.link.wait(self._idle_seconds())

    def step(self) -> bool:
        """One wave, if anything is ready. False when there was nothing to do."""
        self.server.drain()
        self._await_expected()
        wave = self.scheduler.next_wave()
        if wave is not None:
            self._launch(wave)  # before retiring: the device must never wait for us
        else:
            self._give_up_for_memory()
            self.launcher.swap_space.carry_out(self.state.swap.take_moves())
        retired = self._retire(leave=1 if wave is not None and self.config.overlap else 0)
        self.outbox.flush(self.clock(), self.scheduler.waves)
        return wave is not None or retired

    def _launch(self, wave: Wave) -> None:
        self._last_launch = self.clock()
        self.launched.append((self.launcher.launch(wave), wave, self._last_launch))
        self._last_progress = self.clock()

    def _retire(self, leave: int = 0) -> bool:
        """Turns the values of launched waves into events, all but the `leave` newest."""
        retired = False
        while len(self.launched) > leave:
            launched, wave, start = self.launched.popleft()
            for process, event, pipeline in launched.events():
                if not process.ended:
                    self.state.emit(process, event)
                    if pipeline is not None:
                        self._expect_next(pipeline)
            retired, now = True, self.clock()
            self.pace.observe(wave.segments, now - max(start, self._last_retired))
            self._last_retired = now
        if retired:
            now = self.clock()
            share = self.config.patience_share * (now - self._last_launch)
            self._patient_until = now + max(self.config.patience_floor, share)
        return retired

    def _expect_next(self, pipeline: Pipeline) -> None:
        """A pipeline that is driven submit by submit usually submits again at once."""
        gone = pipeline.closed or pipeline.failed or pipeline.parked
        if not (pipeline.queue or gone):
            self.state.expected.add(pipeline)

    def _await_expected(self) -> None:
        """Lets the submits that usually follow join the wave, instead of every other one."""
        while self.state.expected and self.state.active:
            left = self._patient_until - self.clock()
            if left <= 0:
                self.state.expected.clear()
            elif self.link.wait(left):
                self.server.drain()

    def _give_up_for_memory(self) -> None:
        """Pages are wanted, nothing runs, and nobody can give any back: the youngest fire fails."""
        fire = self.scheduler.exhausted()
        if fire is None or self.launched:
            return
        if self.clock() - self._last_progress >= self.config.memory_grace:
            message = "the engine's memory is exhausted, and nothing that runs will free any"
            settle.fail(self.state, fire, Failure(ErrorCode.OUT_OF_MEMORY, message))
            self._last_progress = self.clock()

    def _idle_seconds(self) -> float | None:
        """How long nothing can happen unless a message comes; None: for ever."""
        now = self.clock()
        times = [self.outbox.seconds_to_statistics(now, self.scheduler.waves)]
        if self.scheduler.without_pages:
            times.append(max(self._last_progress + self.config.memory_grace - now, 0.01))
        known = [seconds for seconds in times if seconds is not None]
        return min(known, default=None)
