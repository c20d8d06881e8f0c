"""The hub: launches processes, relays between them, their clients and the worker, and ends all.

One event loop, one thread. It never waits for an inferlet or a client, and never reads what
inferlets and the worker say to each other.
"""

import asyncio
import re
import resource
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import PurePath

from ipc import client as c
from ipc import messages as m
from ipc.codec import PROTOCOL_VERSION
from ipc.errors import ErrorCode, Failure
from pie_cli.engine import endings
from pie_cli.engine.clients import Client, Clients
from pie_cli.engine.launcher import Exit, Launched, Launcher, LaunchError
from pie_cli.engine.process import Process
from pie_cli.engine.worker_process import WorkerOptions, WorkerProcess
from pie_cli.sandbox import selftest

FIRST_CLIENT_SECONDS = 60.0  # that an engine waits for its first client, at least
FAREWELL_SECONDS = 0.2  # in which inferlets may hear that the worker is lost
MAX_PROCESSES = 2000  # that live at once; each has some megabytes of its own
DESCRIPTORS_EACH = 4  # of the hub, at most: a process has two, and its client one
ZYGOTE_STARTS = 3  # in a row that may fail before the engine gives up
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


OnReady = Callable[[m.Ready, str], None]  # with the sandbox's description


@dataclass(frozen=True)
class HubOptions:
    """What an engine is started with."""

    worker: WorkerOptions
    hub_address: str
    worker_address: str
    log_path: str
    sandbox: str  # "auto" | "full" | "none"
    keep_alive: float | None  # seconds without a process; None: for ever


def choose_tier(sandbox: str) -> selftest.Tier:
    """The tier to launch with. Raises SandboxUnavailable; blocks while a probe runs."""
    return selftest.choose(unsafe_no_sandbox=sandbox == "none", only_full=sandbox == "full")


@dataclass(frozen=True)
class EngineEnd:
    """Why the engine left. `failure` is empty when it was asked to, or idle."""

    failure: str = ""
    hint: str = ""


class Hub:
    """Owner of clients, processes, the worker and the zygote. Made inside a running loop."""

    def __init__(self, options: HubOptions, log: Callable[[str], None], on_ready: OnReady) -> None:
        self._options, self._log, self._on_ready = options, log, on_ready
        self._loop = asyncio.get_running_loop()
        self.end: asyncio.Future[EngineEnd] = self._loop.create_future()
        self._by_id: dict[str, Process] = {}  # those whose end was not told yet
        self._by_number: dict[int, Process] = {}  # those that may still exist
        self._last_number = 0
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // DESCRIPTORS_EACH
        self._max_processes = min(MAX_PROCESSES, most)
        self._ready: m.Ready | None = None
        self._worker_up, self._zygote_up = asyncio.Event(), asyncio.Event()
        self._sandbox = ""
        self._progress = c.Progress(0.0, "starting")
        self._stats: m.ProcessStats | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._had_client = False
        self._tasks: set[asyncio.Task] = set()
        self.clients = Clients(options.hub_address, self._on_client, self._on_client_gone)
        self.worker = WorkerProcess(
            options.worker, options.worker_address, options.log_path,
            self._on_report, self._on_events, self._on_worker_death,
        )  # fmt: skip
        self.launcher = Launcher("", None, None)  # cannot launch: the tier is not known yet
        self._spawn(self._start_sandbox())
        self._wait_for_idleness()

    def stop(self, end: EngineEnd = EngineEnd()) -> None:
        """Let the engine leave; `close` does the work. The first reason counts."""
        if not self.end.done():
            self.end.set_result(end)

    async def close(self) -> None:
        """End all processes, tell all clients, and leave nothing behind."""
        end = self.end.result()
        if end.failure:
            self.clients.broadcast(c.EngineFailed(end.failure, end.hint))
        for process in list(self._by_id.values()):
            process.fail(endings.stopped())
        for task in self._tasks:
            task.cancel()
        if end.failure:
            await asyncio.sleep(FAREWELL_SECONDS)
        await self.launcher.close()
        self.clients.close()
        await self.worker.close()

    # ---- what processes need

    def tell(self, client: Client, message: c.FromHub) -> bool:
        return self.clients.send(client, message)

    def relay(self, number: int, commands: bytes) -> None:
        self.worker.relay(number, commands)

    def told_its_end(self, process: Process) -> None:
        """Its id is free again, though the process may not have left yet."""
        del self._by_id[process.id]

    # ---- clients

    def _on_client(self, client: Client, message: c.FromClient) -> None:
        if self.end.done():  # no answer: the client starts the next engine once this one is gone
            return
        match message:
            case c.Hello():
                self._welcome(client)
            case c.Run():
                self._run(client, message)
            case c.Message(id, is_json, text):
                if process := self._by_id.get(id):
                    process.put(m.Inbox(is_json, text))
            case c.CloseInput(id):
                if process := self._by_id.get(id):
                    process.close_inbox()
            case c.Shown(id, size):
                if process := self._by_id.get(id):
                    process.shown(size)
            case c.Kill(ids, interrupted):
                self._kill(client, ids, interrupted)
            case c.List():
                rows = tuple(map(self._row, self._by_id.values()))
                self.tell(client, c.Processes(rows, self._stats))
            case c.StopEngine():
                self._log("asked to stop")
                self.stop()

    def _welcome(self, client: Client) -> None:
        self._had_client = True
        self._wait_for_idleness()
        ready = self._ready is not None and self._zygote_up.is_set()
        self.tell(client, c.Welcome(PROTOCOL_VERSION, self._options.worker.model, ready))
        if not ready:
            self.tell(client, self._progress)

    def _run(self, client: Client, run: c.Run) -> None:
        if reason := self._refusal(run):
            self.tell(client, c.Refused(run.request, *reason))
            return
        self._last_number += 1
        number = self._last_number
        process = Process(self, number, run.name or self._new_id(run.app, number), run, client)
        self._by_id[process.id] = self._by_number[number] = process
        self._wait_for_idleness()
        self._spawn(self._launch(process))

    def _refusal(self, run: c.Run) -> tuple[str, str] | None:
        """Why it cannot be launched, and what to do about it."""
        if run.name is not None and not _NAME.fullmatch(run.name):
            hint = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit"
            return f"`{run.name}` cannot be a process's name", hint
        if run.name in self._by_id:
            hint = f"choose another, or end that process: `pie kill {run.name}`"
            return f"the name `{run.name}` is in use by a live process", hint
        if len(self._by_number) >= self._max_processes:
            text = f"the engine has {self._max_processes} live processes, as many as it may have"
            return text, "launch fewer at once, or end some: `pie ps`, `pie kill ID`"
        return None

    def _new_id(self, app: str, number: int) -> str:
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", PurePath(app).stem).strip("-._")[:40] or "app"
        id = f"{stem}-{number}"
        while id in self._by_id:  # somebody chose that name
            id += "x"
        return id

    def _kill(self, client: Client, ids: tuple[str, ...], interrupted: bool) -> None:
        ending = endings.interrupted() if interrupted else endings.killed()
        unknown = tuple(id for id in ids if id not in self._by_id)
        for id in ids:
            if process := self._by_id.get(id):
                process.end(ending)
        self.tell(client, c.Killed(unknown))

    def _row(self, process: Process) -> c.ProcessRow:
        known = self._stats.processes if self._stats else {}
        tokens_in, tokens_out, pages = known.get(process.number, (None, None, None))
        return c.ProcessRow(
            process.id, process.run.app, process.client.user, process.state,
            self._loop.time() - process.born, tokens_in, tokens_out, pages, process.memory,
            self.launcher.tier,
        )  # fmt: skip

    def _on_client_gone(self, client: Client) -> None:
        for process in list(self._by_id.values()):
            if process.client is not client:
                continue
            if process.run.detach:
                process.client_gone()
            else:
                process.end(endings.client_gone())
        self._wait_for_idleness()

    # ---- processes

    async def _launch(self, process: Process) -> None:
        """One process from its Run to its exit."""
        try:
            if exit := await self._live(process):
                process.exited(exit)
        except (LaunchError, OSError) as error:  # no descriptors left, for one
            process.fail(endings.not_launched(f"the process could not be launched: {error}"))
        del self._by_number[process.number]
        self._wait_for_idleness()

    async def _live(self, process: Process) -> Exit | None:
        await self._worker_up.wait()
        await self._zygote_up.wait()
        if process.ended:  # while it waited
            return None
        launched: Launched = await self.launcher.launch(process.limits)
        run, ready = process.run, self._ready
        self.worker.notify(
            m.ProcessStarted(process.number, process.limits, run.salt, run.priority)
        )
        launch = m.Launch(
            process.id, run.app, run.source, run.modules, run.input, run.files,
            ready.model, ready.engine,
        )  # fmt: skip
        process.start(launched, launch)
        exit = await launched.exited
        self.worker.notify(m.ProcessEnded(process.number))
        return exit

    def _wait_for_idleness(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None
        delay = self._options.keep_alive
        if delay is None or self._by_number or len(self.clients):
            return
        if not self._had_client:
            delay = max(delay, FIRST_CLIENT_SECONDS)
        self._idle = self._loop.call_later(delay, self.stop)

    def _spawn(self, work: Coroutine) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the zygote

    async def _start_sandbox(self) -> None:
        try:
            tier = await asyncio.to_thread(choose_tier, self._options.sandbox)
        except selftest.SandboxUnavailable as error:
            self.stop(EngineEnd(str(error), error.hint))
            return
        self._sandbox = tier.description
        self._log(f"sandbox: {tier.description}")
        worker = self._options.worker
        self.launcher = Launcher(
            tier.name, worker.model_path, self._options.log_path, on_death=self._on_zygote_death
        )
        await self._start_zygote()

    async def _start_zygote(self) -> None:
        for attempt in range(ZYGOTE_STARTS):
            try:
                await self.launcher.start()
            except LaunchError as error:
                self._log(f"start {attempt + 1} of the zygote failed: {error}")
                failure = str(error)
            else:
                self._zygote_up.set()
                self._check_ready()
                return
        self.stop(EngineEnd(f"the sandbox could not start: {failure}"))

    def _on_zygote_death(self) -> None:
        self._log("the zygote ended unexpectedly")
        self._zygote_up.clear()
        for process in list(self._by_number.values()):
            if process.state == "running":
                process.end(endings.no_zygote())
        self._spawn(self._start_zygote())

    def _check_ready(self) -> None:
        if self._worker_up.is_set() and self._zygote_up.is_set():
            if self._progress.fraction < 1.0:  # a new zygote is no news
                self._on_ready(self._ready, self._sandbox)
            self._show(c.Progress(1.0, "ready"))

    def _show(self, progress: c.Progress) -> None:
        self._progress = progress
        self.clients.broadcast(progress)

    # ---- the worker

    def _on_report(self, report: m.WorkerReport) -> None:
        match report:
            case m.Loading(fraction, text):
                self._show(c.Progress(min(fraction, 0.99), text))
            case m.Ready():
                self._ready = report
                self._worker_up.set()
                self._log(f"the worker is ready: {report.timings}")
                self._check_ready()
            case m.LoadFailed(message, hint):
                self.stop(EngineEnd(f"the engine could not start: {message}", hint))
            case m.ProcessStats():
                self._stats = report

    def _on_events(self, number: int, events: bytes) -> None:
        if process := self._by_number.get(number):
            process.write_events(events)

    def _on_worker_death(self, how: str) -> None:
        text = "the worker ended unexpectedly" if self._ready else "the worker ended while starting"
        failure = Failure(ErrorCode.WORKER_LOST, f"{text} ({how})")
        for process in self._by_number.values():
            process.write_message(m.Engine(failure))
        self.stop(EngineEnd(failure.message))
