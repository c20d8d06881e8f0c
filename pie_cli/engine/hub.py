"""The hub: launches processes, relays between them, their clients and the worker, and ends all.

One event loop, one thread. It never waits for an inferlet or a client, and never reads what
inferlets and the worker say to each other.
"""

import asyncio
import resource
from collections.abc import Callable, Coroutine

from ipc import client as c
from ipc import messages as m
from ipc.codec import PROTOCOL_VERSION
from ipc.errors import ErrorCode, Failure
from pie_cli import settings
from pie_cli.engine import endings
from pie_cli.engine.admission import Admission, attached_size
from pie_cli.engine.clients import Client, Clients
from pie_cli.engine.door_process import close_door, open_door
from pie_cli.engine.happenings import Happenings
from pie_cli.engine.ids import Ids
from pie_cli.engine.journal import Journal
from pie_cli.engine.launcher import Exit, Launched, Launcher, LaunchError
from pie_cli.engine.limits import LimitRefused, lowered
from pie_cli.engine.metrics import Counts, MetricsServer, text_of
from pie_cli.engine.options import Front, HubOptions
from pie_cli.engine.parts import EngineEnd, PartOptions, Parts
from pie_cli.engine.process import Process
from pie_cli.engine.processes import Processes, is_name
from pie_cli.engine.quotas import MAX_UNFINISHED, MAX_UNREAD_OF_ALL, Speakers
from pie_cli.engine.reports import Reports
from pie_cli.engine.requests import Requests
from pie_cli.engine.shares import Memory
from pie_cli.engine.worker_process import WorkerProcess

FIRST_CLIENT_SECONDS = 60.0  # that an engine waits for its first client, at least
LAST_THINGS_SECONDS = 5.0  # that processes have for what they do at their end
FAREWELL_SECONDS = 0.2  # in which inferlets may hear that the worker is lost
LEAVE_SECONDS = 2.0  # in which clients whose processes have ended may leave
MAX_PROCESSES = 2000  # that live at once; each has some megabytes of its own
DESCRIPTORS_EACH = 4  # of the hub, at most: a process has two, and its client one


class Hub:
    """Owner of clients, processes, the worker and the zygote. Made inside a running loop."""

    def __init__(self, options: HubOptions, journal: Journal, front: Front) -> None:
        self._options, self._journal, self._front = options, journal, front
        self._loop = asyncio.get_running_loop()
        self.files_folder = options.files_folder or str(settings.home() / "files")
        self.end: asyncio.Future[EngineEnd] = self._loop.create_future()
        self._progress = c.Progress(0.0, "starting")
        self._idle: asyncio.TimerHandle | None = None
        self._had_client = self._was_ready = self._is_hurried = False
        self._tasks: set[asyncio.Task] = set()
        self._processes = Processes(
            Ids(str(settings.home() / ".last-process"), str(settings.run_folder() / ".names"))
        )
        self.happenings, self.counts, self.speakers = Happenings(), Counts(), Speakers()
        self.memory = Memory(MAX_UNFINISHED, MAX_UNREAD_OF_ALL)
        self._requests = Requests(self._processes, self.happenings, self.tell, options.worker.model)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // DESCRIPTORS_EACH
        self._admission = Admission(
            min(MAX_PROCESSES, most),
            lambda process: self._spawn(self._launch(process)),
            lambda process, notice: self.tell(process.client, notice),
        )
        self.clients = Clients(options.hub_address, self._on_client, self._on_client_gone)
        parts = PartOptions(
            options.worker, options.worker_address, options.log_path,
            options.sandbox, options.limits,
        )  # fmt: skip
        self._parts = Parts(parts, journal, self)
        known = self._processes, self._admission, self._parts, self.clients
        self._reports = Reports(*known, options)
        self._door = open_door(options, journal, self.on_failure)
        self._metrics: MetricsServer | None = None
        if options.metrics_port is not None:
            self._spawn(self._serve_metrics(options.metrics_port))
        self._wait_for_idleness()

    @property
    def worker(self) -> WorkerProcess:
        return self._parts.worker

    @property
    def launcher(self) -> Launcher:
        return self._parts.launcher

    def stop(self, end: EngineEnd = EngineEnd()) -> None:
        """Let the engine leave; `close` does the work. The first reason counts; who says it again
        is in a hurry."""
        if self.end.done():
            self._is_hurried = True
        else:
            self.end.set_result(end)

    async def close(self) -> None:
        """End all processes, tell all clients, and leave nothing behind."""
        end = self.end.result()
        self._parts.cancel()
        self._admission.close()
        told = {process.client for process in self._processes.by_id.values()}
        if not end.failure:
            for process in list(self._processes.by_id.values()):
                process.leave()
            await self._until(lambda: not self._processes.by_id, LAST_THINGS_SECONDS)
        if self._metrics:
            self._metrics.close()
        if end.failure:
            self.clients.broadcast(c.EngineFailed(end.failure, end.hint))
            failure = Failure(ErrorCode.WORKER_LOST, end.failure)
            for process in self._processes.by_number.values():
                process.write_message(m.Engine(failure))
        for process in list(self._processes.by_id.values()):
            process.fail(endings.stopped())
        for task in self._tasks:
            task.cancel()
        if end.failure:
            await asyncio.sleep(FAREWELL_SECONDS)
        await self._parts.close_launcher()
        # A ZeroMQ peer that is gone may have been heard only in part.
        await self._until(lambda: not any(client in self.clients for client in told), LEAVE_SECONDS)
        for process in self._processes.by_number.values():
            process.close()
        self.clients.close()
        await close_door(self._door)
        await self._parts.close_worker()

    async def _until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait for it, or for so long, or until somebody is in a hurry."""
        deadline = self._loop.time() + seconds
        while not is_done() and not self._is_hurried and self._loop.time() < deadline:
            await asyncio.sleep(0.005)

    async def _serve_metrics(self, port: int) -> None:
        self._metrics = MetricsServer(
            port, lambda: text_of((*self._reports.samples(), *self.counts.samples()))
        )
        try:
            await self._metrics.start()
        except OSError as error:
            reason = f"the port {port} for metrics cannot be had: {error.strerror}"
            self.on_failure(EngineEnd(reason, "choose another with `--metrics PORT`"))
        else:
            self._journal.info("metrics", port=self._metrics.port)

    # ---- what processes need

    def tell(self, client: Client, message: c.FromHub) -> bool:
        return self.clients.send(client, message)

    def relay(self, process: Process, commands: bytes) -> None:
        process.has_state = True
        self.worker.relay(process.number, commands)
        process.wait_for_worker(not self._parts.has_worker)

    def send_to(self, sender: Process, message: m.SendTo) -> str:
        return self._requests.send_to(sender, message)

    def told_its_end(self, process: Process) -> None:
        self._processes.told_its_end(process)
        if process.position is not None:  # in the queue: it never was more than its Run
            self._admission.leave(process)
            self._processes.gone(process)
            self._wait_for_idleness()
        record = process.record
        facts = {"process": record.id, "client": record.client, "exit": record.exit}
        reason = record.terminal.message if isinstance(record.terminal, c.Error) else None
        self._journal.info("ended", **facts, reason=reason)

    # ---- clients

    def _on_client(self, client: Client, message: c.FromClient) -> None:
        if self.end.done() and isinstance(message, (c.Hello, c.Run)):
            return  # no answer: the client starts the next engine once this one is gone
        if self._requests.handle(client, message):
            return
        match message:
            case c.Hello():
                self._welcome(client)
            case c.Run():
                self._run(client, message)
            case c.Kill(ids, interrupted):
                self._kill(client, ids, interrupted)
            case c.List():
                self.tell(client, self._reports.processes(client))
            case c.AskFacts(request):
                self.tell(client, self._reports.facts(request, client))
            case c.StopEngine() if not client.is_remote:
                self._journal.info("stop-asked", client=client.user)
                self.stop()

    def _welcome(self, client: Client) -> None:
        self._had_client = True
        self._wait_for_idleness()
        ready = self._parts.are_up
        model, listens = self._options.worker.model, self._options.listens
        self.tell(client, c.Welcome(PROTOCOL_VERSION, model, ready, listens))
        if not ready:
            self.tell(client, self._progress)

    def _run(self, client: Client, run: c.Run) -> None:
        run = client.own(run, self.files_folder)
        try:
            limits = lowered(self._options.limits, run.limits, run.timeout)
        except LimitRefused as error:
            self.tell(client, c.Refused(run.request, str(error), error.hint))
            return
        if reason := self._refusal(run):
            self.tell(client, c.Refused(run.request, *reason))
            return
        record = self._processes.new_record(run.app, run.name, run.client or client.user)
        process = Process(self, record, run, client, limits)
        self._processes.add(process)
        self._journal.info(
            "launch", process=process.id, client=record.client, app=run.app, pid=client.pid,
            priority=run.priority or None, detached=run.detach or None,
        )  # fmt: skip
        self._wait_for_idleness()
        self._admission.submit(process)

    def _refusal(self, run: c.Run) -> tuple[str, str] | None:
        """Why it cannot be launched, and what to do about it."""
        if run.name is not None and not is_name(run.name):
            hint = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit"
            return f"`{run.name}` cannot be a process's name", hint
        if reason := self._admission.refusal(attached_size(run)):
            return reason
        if run.name is not None and not self._processes.take_name(run.name):
            hint = f"choose another, or end that process: `pie kill {run.name}`"
            return f"the name `{run.name}` is in use by a live process", hint
        return None

    def _kill(self, client: Client, ids: tuple[str, ...], interrupted: bool) -> None:
        ending = endings.interrupted() if interrupted else endings.killed()
        known = self._processes.found(ids, client.may_see)
        for process in known.values():
            process.end(ending)
        self.tell(client, c.Killed(tuple(id for id in ids if id not in known)))

    def _on_client_gone(self, client: Client) -> None:
        self._requests.forget(client)
        for process in list(self._processes.by_id.values()):
            if process.client is client and not process.run.detach:
                process.end(endings.client_gone())
            else:
                process.forget(client)
        self._wait_for_idleness()

    # ---- processes

    async def _launch(self, process: Process) -> None:
        """One process from its turn to its exit."""
        try:
            if exit := await self._live(process):
                process.exited(exit)
        except (LaunchError, OSError) as error:  # no descriptors left, for one
            process.fail(endings.not_launched(f"the process could not be launched: {error}"))
        self._processes.gone(process)
        self._admission.gone()
        self._wait_for_idleness()

    async def _live(self, process: Process) -> Exit | None:
        await self._parts.until_up()
        if process.ended:  # while it waited
            return None
        launched: Launched = await self.launcher.launch(process.limits)
        run, ready = process.run, self._parts.ready
        self._notify_start(process)
        launch = m.Launch(
            process.id, run.app, run.source, run.modules, run.input, run.files,
            ready.model, ready.engine,
        )  # fmt: skip
        process.start(launched, launch)
        exit = await launched.exited
        self.worker.notify(m.ProcessEnded(process.number))
        return exit

    def _notify_start(self, process: Process) -> None:
        run = process.run
        self.worker.notify(m.ProcessStarted(process.number, process.limits, run.salt, run.priority))

    def _wait_for_idleness(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None
        delay = self._options.keep_alive
        if delay is None or self._processes.by_number or len(self.clients):
            return
        if not self._had_client:
            delay = max(delay, FIRST_CLIENT_SECONDS)
        self._idle = self._loop.call_later(delay, self.stop)

    def _spawn(self, work: Coroutine) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the parts

    def on_progress(self, progress: c.Progress) -> None:
        """Told to all while the engine starts, and later to those whose launches wait for it."""
        self._progress = progress
        self._front.progress(progress)
        if not self._was_ready:
            self.clients.broadcast(progress)
            return
        for client in {p.client for p in self._processes.by_id.values() if p.state == "waiting"}:
            self.tell(client, progress)

    def on_ready(self) -> None:
        self._front.ready(self._parts.ready, self._parts.sandbox)

    def on_up(self) -> None:
        self.on_progress(c.Progress(1.0, "ready"))
        self._was_ready = True
        self.on_worker_room()

    def on_worker_room(self) -> None:
        self._processes.wait_for_worker(not self._parts.has_worker)

    def on_stats(self, stats: m.ProcessStats) -> None:
        self.counts.stats(stats)

    def on_events(self, number: int, events: bytes) -> None:
        if process := self._processes.by_number.get(number):
            process.write_events(events)

    def on_worker_lost(self, how: str) -> None:
        """Those that had state in it end. The others go on, and the new one hears of them."""
        for process in list(self._processes.by_number.values()):
            if process.state != "running":
                continue
            if process.has_state:
                process.end(endings.no_worker(how, self._options.log_path))
            else:
                self._notify_start(process)

    def on_zygote_lost(self) -> None:
        for process in list(self._processes.by_number.values()):
            if process.state == "running":
                process.end(endings.no_zygote())

    def on_failure(self, end: EngineEnd) -> None:
        self._journal.error("failure", reason=end.failure)
        self.stop(end)
