"""The worker as the hub sees it: a process, and one link. Relays bytes that it never reads."""

import asyncio
import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import zmq

from ipc import messages as m
from ipc.errors import ProtocolError
from ipc.transport import ZmqLink, monitor, next_event
from pie_cli.engine.zmq_reader import ZmqReader

STOP_SECONDS = 10.0
TERMINATE_SECONDS = 2.0
MAX_AHEAD = 64 << 20  # bytes that may wait for it, before processes wait that send more
LOST_SECONDS = 1.0  # in which a worker whose link ended has ended itself
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class WorkerOptions:
    """What the worker is started with."""

    module: str
    model: str
    model_path: str

    def command(self, address: str) -> list[str]:
        command = [sys.executable, "-m", self.module, "--link", address]
        return [*command, "--model-path", self.model_path, "--model-name", self.model]


class WorkerProcess:
    """Started by the constructor. All that is sent in one turn of the loop is one message.

    What is sent before it is ready goes out when it is.
    """

    def __init__(
        self,
        options: WorkerOptions,
        address: str,
        log_path: str,
        on_report: Callable[[m.WorkerReport], None],
        on_batch: Callable[[int, bytes], None],
        on_death: Callable[[str], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_room`: it is no longer full."""
        self._loop = asyncio.get_running_loop()
        self._on_report, self._on_batch, self._on_death = on_report, on_batch, on_death
        self._on_room, self._was_full = on_room, False
        self._kept = 0  # bytes of batches
        self._notices: list[m.Control] = []
        self._batches: list[tuple[int, bytes]] = []
        self._flushing = False
        self._serving = False
        self.link = ZmqLink(address, bind=True, is_hub=True)
        # Without a worker a send would wait for one for ever; its death is told by the pidfd.
        self.link.socket.setsockopt(zmq.SNDTIMEO, 0)
        self._reader = ZmqReader(self.link.fileno, self._receive)
        self._monitor = monitor(self.link.socket)
        self._monitor_reader = ZmqReader(self._monitor.getsockopt(zmq.FD), self._watch)
        self._connection = -1  # the worker's, as the link's own descriptor
        self._fault = ""  # for which it is killed
        self._process = spawn(options.command(address), log_path)
        self.link.expected_peer = self._process.pid
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def pid(self) -> int:
        return self._process.pid

    def relay(self, number: int, commands: bytes) -> None:
        """Commands of a process, in order with what was notified and relayed before."""
        self._batches.append((number, commands))
        self._kept += len(commands)
        self._was_full = self.is_full
        self._flush_soon()

    @property
    def is_full(self) -> bool:
        """Whether so much waits for it that no more should come: it is busy, or stopped."""
        return self.link.unread + self._kept > MAX_AHEAD

    def notify(self, *controls: m.Control) -> None:
        """Goes before what is relayed in the same turn of the loop."""
        self._notices += controls
        self._flush_soon()

    async def close(self) -> None:
        """Ask it to end, and see to it that it does. May be called again."""
        if self._pidfd < 0:
            return
        self._loop.remove_reader(self._pidfd)
        self._process.send_signal(signal.SIGCONT)  # a stopped one cannot end itself
        if self._process.poll() is None and not await self._shut_down():
            self._process.terminate()
            if not await self._wait(TERMINATE_SECONDS):
                self._process.kill()
                self._process.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        self._reader.close()
        self._monitor_reader.close()
        self.link.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.link.close()

    async def _shut_down(self) -> bool:
        """Whether it ended when asked. One that still loads does not listen."""
        if not self._serving:
            return False
        self._notices.append(m.Shutdown())
        self._flush()
        return await self._wait(STOP_SECONDS)

    async def _wait(self, seconds: float) -> bool:
        ended = self._loop.create_future()
        self._loop.add_reader(self._pidfd, lambda: ended.done() or ended.set_result(None))
        try:
            await asyncio.wait_for(ended, seconds)
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(self._pidfd)
        self._process.wait()
        return True

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._serving and (self._notices or self._batches):
            notices, batches = self._notices, self._batches
            self._notices, self._batches, self._kept = [], [], 0
            with suppress(zmq.Again):
                self.link.send(notices, batches)
            self._reader.check()

    def _receive(self) -> bool:
        try:
            message = self.link.receive()
        except ProtocolError as error:
            self._break(f"it sent what the engine cannot read: {error}")
            return True
        if message is None:
            return False
        if self._fault:
            return True
        reports, batches = message
        for report in reports:
            if isinstance(report, m.Ready):
                self._serving = True
                self._flush_soon()
            self._on_report(report)
        for number, events in batches:
            self._on_batch(number, events)
        if self._was_full and not self.is_full:
            self._was_full = False
            self._on_room()
        return True

    def _watch(self) -> bool:
        """Who connects: nobody but the worker may, and once."""
        event = next_event(self._monitor)
        if event is None:
            return False
        kind, descriptor = event
        if kind == zmq.EVENT_ACCEPTED and self._process.pid == pid_behind(descriptor):
            self._connection = descriptor
        elif kind == zmq.EVENT_ACCEPTED:
            cut_off(descriptor)
        elif kind == zmq.EVENT_DISCONNECTED and descriptor == self._connection:
            self._loop.call_later(LOST_SECONDS, self._break, "its link broke off")
        return True

    def _break(self, fault: str) -> None:
        """It cannot be worked with: its end is told as any other, with this reason."""
        if not self._fault and self._pidfd >= 0 and self._process.poll() is None:
            self._fault = fault
            self._serving = False
            self._process.kill()

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._serving = False
        self._reader.check()  # its last words may still be unread
        self._loop.call_soon(self._report_death, self._process.wait())

    def _report_death(self, status: int) -> None:
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        self._on_death(self._fault or how)


def pid_behind(descriptor: int) -> int | None:
    """The process at the other end of a connection; None when it is gone."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as made:
            return _CREDENTIALS.unpack(
                made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )[0]
    except OSError:
        return None


def cut_off(descriptor: int) -> None:
    """End a connection whose descriptor is ZeroMQ's."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as made:
        made.shutdown(socket.SHUT_RDWR)


def spawn(
    command: list[str], log_path: str, descriptors: Collection[int] = ()
) -> subprocess.Popen:
    """A part of the engine: it writes to the log, inherits `descriptors`, and ends with the hub."""
    hub = os.getpid()

    def die_with_hub() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != hub:  # it ended before the call
            os._exit(1)

    with open(log_path, "ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=descriptors,
            preexec_fn=die_with_hub,  # noqa: PLW1509 - it makes two system calls
            start_new_session=True,  # a Ctrl-C in the terminal is for the hub alone
        )  # fmt: skip
