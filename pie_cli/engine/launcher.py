"""The trusted side of launching: starts the zygote, asks it for processes, hears of their ends.

Belongs to the hub's event loop. A process's identity is the socket that `launch` returns: what
arrives there came from that process, whatever it says. Never reads or writes that socket itself.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pie_cli.engine import control, zygote_process

NUM_SPARES = 3  # each saves a launch 2 ms, and holds 1.5 MB until then
_START_TIMEOUT = 60.0  # seconds; a cold disk needs several
_CLOSE_TIMEOUT = 5.0


class LaunchError(Exception):
    """The zygote could not be started, or it is not running."""


@dataclass(frozen=True)
class Limits:
    """What one process may use."""

    memory: int = 1 << 30  # bytes, beyond what the loaded SDK takes
    cpu: int = 24 * 3600  # seconds
    descriptors: int = 64


@dataclass(frozen=True)
class Exit:
    """How a process ended."""

    status: int  # exit code, or minus the signal
    cpu: float  # seconds, user and system
    max_rss: int  # bytes
    setup_failed: str | None  # set: it never ran, since it could not be confined
    memory: int = 0  # of `max_rss`, what is beyond a bare launch


@dataclass
class Launched:
    """One process. `sock` is the trusted end of its only way out, and belongs to the caller."""

    launch_id: int
    sock: socket.socket
    exited: "asyncio.Future[Exit]"
    pid: int | None = None  # known a moment after the launch


@dataclass
class _Child:
    launched: Launched
    pidfd: int | None = None
    pending: list[int] = field(default_factory=list)  # signals asked for before its pid came


class Launcher:
    """One zygote and its children. `start` may be called again after the zygote died."""

    def __init__(
        self,
        tier: str,
        model_path: str | None,
        log_path: str | None,
        *,
        entry: str | None = None,
        on_death: Callable[[], None] | None = None,
        num_spares: int = NUM_SPARES,
        spare_limits: "Limits | None" = None,
    ) -> None:
        """`entry` (`module:function`, called with the descriptor) is for tests.

        `on_death` is called when the zygote ends unasked; every process was killed then.
        `num_spares`: so many processes with `spare_limits` are launched ahead.
        """
        self.tier = tier
        self.model_path = model_path
        self.log_path = log_path
        self.entry = entry
        self.on_death = on_death
        self.num_spares = num_spares
        self.spare_limits = spare_limits or Limits()
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None
        self._base_size = 0  # mapped by the zygote
        self._base_resident = 0  # of a spare that waits
        self._last_id = 0
        self._children: dict[int, _Child] = {}
        self._spares: deque[_Child] = deque()
        self._unsent: deque[tuple[control.Launch, int]] = deque()

    @property
    def zygote_pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the zygote and wait until it is ready. Raises LaunchError."""
        if self._link:
            raise LaunchError("the zygote runs already")
        zygote_process.raise_descriptor_limit()
        self._process = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                self._process = await zygote_process.spawn(
                    self._arguments(theirs.fileno()), self.log_path, theirs.fileno()
                )
            await asyncio.wait_for(_ready(ours), _START_TIMEOUT)
        except BaseException as error:
            ours.close()  # ends the zygote, also when we were cancelled
            if isinstance(error, (OSError, EOFError, TimeoutError)):
                raise LaunchError(await self._failed_start(error)) from error
            raise
        self._base_size, self._base_resident = zygote_process.sizes(self._process.pid)
        self._link = ours
        asyncio.get_running_loop().add_reader(ours, self._read_reports)
        self._refill()

    def _arguments(self, descriptor: int) -> list[str]:
        arguments = ["--control", str(descriptor), "--tier", self.tier]
        if self.model_path:
            arguments += ["--model", os.path.abspath(self.model_path)]
        if self.entry:
            arguments += ["--entry", self.entry]
        return arguments

    async def _failed_start(self, error: Exception) -> str:
        where = f"see `{self.log_path}`" if self.log_path else "it has no log file"
        if self._process is None:
            return f"the zygote could not be started: {error}"
        if isinstance(error, TimeoutError):
            self._process.kill()
            await self._process.wait()
            return f"the zygote was not ready after {_START_TIMEOUT:.0f} s; {where}"
        status = await self._process.wait()
        return f"the zygote ended while starting, with status {status}; {where}"

    async def launch(self, limits: Limits) -> Launched:
        """A process, spare or new. Its confinement may still be under way when this returns."""
        if not self._link:
            raise LaunchError("the zygote is not running")
        child = self._take_spare() if _key(limits) == _key(self.spare_limits) else None
        child = child or self._order(limits)
        with contextlib.suppress(OSError):  # no descriptors: the launch has its own
            self._refill()
        return child.launched

    def _take_spare(self) -> _Child | None:
        """The oldest spare process that has not ended."""
        while self._spares:
            child = self._spares.popleft()
            if not child.launched.exited.done():
                return child
            child.launched.sock.close()
        return None

    def _refill(self) -> None:
        """Order spares for those taken. Not for those that ended: whatever it was may go on."""
        while self._link and len(self._spares) < self.num_spares:
            self._spares.append(self._order(self.spare_limits))

    def _order(self, limits: Limits) -> _Child:
        """Ask the zygote for one process."""
        self._last_id += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        exited = asyncio.get_running_loop().create_future()
        child = _Child(Launched(self._last_id, ours, exited))
        self._children[self._last_id] = child
        size = self._base_size + limits.memory
        message = control.Launch(self._last_id, size, limits.cpu, limits.descriptors)
        self._unsent.append((message, theirs.detach()))
        self._send_launches()
        return child

    def _send_launches(self) -> None:
        """Send what the socket takes now; the rest when it takes more.

        Never waits: a zygote that waits for us to read its reports would wait for ever.
        """
        loop = asyncio.get_running_loop()
        while self._unsent:
            message, descriptor = self._unsent[0]
            try:
                control.send(self._link, message, descriptor)
            except BlockingIOError:
                loop.add_writer(self._link, self._send_launches)
                return
            except ConnectionError:
                self._died()
                return
            self._unsent.popleft()
            os.close(descriptor)
        loop.remove_writer(self._link)

    def kill(self, launch_id: int, number: int = signal.SIGKILL) -> None:
        """Send a signal. Nothing happens when the process has ended already."""
        child = self._children.get(launch_id)
        if child is None:
            return
        pid = child.launched.pid
        if pid is None:
            child.pending.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            if child.pidfd is not None:
                signal.pidfd_send_signal(child.pidfd, number)
            else:
                os.kill(pid, number)

    def _read_reports(self) -> None:
        while self._link:
            try:
                data, descriptors = control.receive(self._link)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._died()
                return
            match control.decode_report(data):
                case control.Spawned(launch_id, pid):
                    self._spawned(launch_id, pid, descriptors)
                case control.Exited() as report:
                    self._exited(report)

    def _spawned(self, launch_id: int, pid: int, descriptors: list[int]) -> None:
        child = self._children[launch_id]
        child.launched.pid = pid
        # Without a pidfd (our table was full) it is killed by number; the zygote may have reaped the
        # process in between, so this is the exception.
        child.pidfd = descriptors[0] if descriptors else None
        for number in child.pending:
            self.kill(launch_id, number)
        child.pending.clear()

    def measure_base(self) -> int:
        """What a bare launch has in memory, in bytes, shared with all others but for 2.5 MB: less
        than the zygote, whose file pages no fork has.
        """
        if self._spares and self._spares[0].launched.pid is not None:
            with contextlib.suppress(OSError, IndexError):
                _, self._base_resident = zygote_process.sizes(self._spares[0].launched.pid)
        return self._base_resident

    def _exited(self, report: control.Exited) -> None:
        # A spare is measured after crashes alone: of others nobody asks what they took.
        base = self.measure_base() if report.status else self._base_resident
        memory = max(0, report.max_rss - base)
        end = Exit(report.status, report.cpu, report.max_rss, report.setup_failed, memory)
        self._finish(self._children.pop(report.launch_id), end)

    def _finish(self, child: _Child, end: Exit) -> None:
        if child.pidfd is not None:
            os.close(child.pidfd)
        if not child.launched.exited.done():
            child.launched.exited.set_result(end)

    def _forget_spares(self) -> None:
        for child in self._spares:
            child.launched.sock.close()
        self._spares.clear()

    def _died(self) -> None:
        self._disconnect()
        if self.on_death:
            self.on_death()

    def _disconnect(self) -> None:
        """Close the control socket, which ends the zygote, and with it every child."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._link)
        loop.remove_writer(self._link)
        self._link.close()
        self._link = None
        for _, descriptor in self._unsent:
            os.close(descriptor)
        self._unsent.clear()
        self._forget_spares()
        for launch_id in list(self._children):
            self.kill(launch_id)
            self._finish(self._children.pop(launch_id), Exit(-signal.SIGKILL, 0.0, 0, None))

    async def close(self) -> None:
        """End the zygote and all children, and wait until they are gone."""
        if not self._link:
            return
        ends = [child.launched.exited for child in self._children.values()]
        for launch_id in list(self._children):
            self.kill(launch_id)
        with contextlib.suppress(ProcessLookupError):  # a stopped one would not tell of their ends
            self._process.send_signal(signal.SIGCONT)
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_TIMEOUT)
        if self._link:  # else the zygote died meanwhile
            self._disconnect()
        try:
            await asyncio.wait_for(self._process.wait(), _CLOSE_TIMEOUT)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _key(limits: Limits) -> tuple[int, int, int]:
    """What a spare is made with: set before a process waits, and not to be changed after."""
    return limits.memory, limits.cpu, limits.descriptors


async def _ready(link: socket.socket) -> None:
    data = await asyncio.get_running_loop().sock_recv(link, control.MAX_MESSAGE)
    if not data:
        raise EOFError
    if not isinstance(control.decode_report(data), control.Ready):
        raise OSError("the zygote spoke before it was ready")
