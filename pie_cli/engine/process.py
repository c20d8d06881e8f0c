"""One inferlet as the hub sees it: what it was launched with, its socket, its inbox, its end.

Tells its client what happens to it. Does not know the other processes.
"""

import asyncio
import signal
import time
from pathlib import Path
from typing import Protocol

from ipc import client as c
from ipc import codec, frames
from ipc import messages as m
from ipc.types import Limits
from pie_cli.engine import endings
from pie_cli.engine.clients import Client
from pie_cli.engine.endings import Ending
from pie_cli.engine.frame_socket import FrameSocket
from pie_cli.engine.inboxes import Inbox
from pie_cli.engine.launcher import Exit, Launched, Launcher
from pie_cli.engine.quotas import MAX_UNSHOWN, Meter

EXIT_SECONDS = 5.0  # that a process may take to leave after its terminal event


class Owner(Protocol):
    """What a process needs of the hub."""

    launcher: Launcher

    def tell(self, client: Client, message: c.FromHub) -> bool: ...
    def relay(self, number: int, commands: bytes) -> None: ...
    def told_its_end(self, process: "Process") -> None: ...


class Process:
    """From the client's Run to the exit of the operating system's process."""

    def __init__(self, owner: Owner, number: int, id: str, run: c.Run, client: Client) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.number, self.id, self.run, self.client = number, id, run, client
        self.limits = Limits()
        self.born = self._loop.time()
        self.inbox = Inbox()
        self.ended = False  # the terminal event was told
        self.receiving = False
        self._ending: Ending | None = None  # why it is being killed
        self._output = Meter(self.limits.output)
        self._launched: Launched | None = None
        self._socket: FrameSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unshown = 0  # what its client has not dealt with

    @property
    def state(self) -> str:
        return "running" if self._launched else "waiting"

    @property
    def memory(self) -> int | None:
        """Resident bytes, shared pages included; None when unknown."""
        if not self._launched or not self._launched.pid:
            return None
        try:
            status = Path(f"/proc/{self._launched.pid}/status").read_text()
            resident = status.partition("VmRSS:")[2].split()[0]
        except (OSError, IndexError):
            return None
        return int(resident) << 10

    # ---- life

    def start(self, launched: Launched, launch: m.Launch) -> None:
        """The operating system's process exists: give it what it is to run."""
        self._launched = launched
        self._socket = FrameSocket(launched.sock, self._on_frame, self._feed_inbox, self.end)
        sandbox = self._owner.launcher.tier
        self._tell(c.Launched(self.run.request, self.id, time.time(), sandbox))
        self._socket.write(frames.pack(frames.HUB, codec.encode(launch)), trusted=True)
        if self.ended:
            self._kill()
        elif (timeout := self.run.timeout) is not None:
            self._timer = self._loop.call_later(timeout, self.end, endings.timed_out(timeout))

    def end(self, ending: Ending) -> None:
        """Kill it; its client hears of `ending` once it is gone. The first reason counts."""
        if self.ended or self._ending:
            return
        self._ending = ending
        if self._launched:
            self._kill()
        else:
            self.fail(ending)

    def fail(self, ending: Ending) -> None:
        """Tell the client of the end now, whatever becomes of the process."""
        if self.ended:
            return
        self._finish(
            c.Error(
                self.id, time.time(), ending.error, ending.message, ending.traceback, ending.exit,
                ending.limit,
            )
        )  # fmt: skip

    def exited(self, exit: Exit) -> None:
        """It is gone: read what it left, and tell how it ended unless it did itself."""
        if self._socket:
            self._socket.drain()
            self._socket.close()
        own = endings.of_exit(exit.status, exit.cpu, exit.setup_failed, self.limits)
        self.fail(self._ending or own)

    # ---- to the inferlet

    def write_events(self, events: bytes) -> None:
        if self._socket:
            self._socket.write(frames.pack(frames.ENGINE, events))

    def write_message(self, message: m.ToInferlet) -> None:
        if self._socket:
            self._socket.write(frames.pack(frames.HUB, codec.encode(message)))

    def put(self, message: m.Inbox) -> None:
        """A message of the client. One that finds no room is dropped; clients wait for Taken."""
        self.inbox.put(message)
        self._feed_inbox()

    def close_inbox(self) -> None:
        self.inbox.close()
        self._feed_inbox()

    def shown(self, size: int) -> None:
        """Its client is that much less behind."""
        self._unshown -= size
        self._socket.hold(self._unshown > MAX_UNSHOWN)

    def client_gone(self) -> None:
        """A detached process goes on; nobody is behind any more."""
        if self._socket:
            self._socket.hold(False)

    def _feed_inbox(self) -> None:
        taken = 0
        while self.receiving and self._socket.has_room and (message := self.inbox.next()):
            self.write_message(message)
            taken += isinstance(message, m.Inbox)
        if taken:
            self._tell(c.Taken(self.id, taken))

    # ---- from the inferlet

    def _on_frame(self, kind: int, body: bytes) -> None:
        if self.ended or self._ending:
            return
        if kind == frames.ENGINE:
            self._owner.relay(self.number, body)
        else:
            self._on_message(codec.decode_from_inferlet(body))

    def _on_message(self, message: m.FromInferlet) -> None:
        now = time.time()
        match message:
            case m.Send(is_json, text):
                self._tell_text(c.Sent(self.id, now, is_json, text))
            case m.Output(stream, text):
                self._tell_text(c.Printed(self.id, now, stream, text))
                if not self._output.add(len(text.encode())):
                    self.end(endings.beyond_output(self._output.limit))
            case m.Receiving():
                self.receiving = True
                self._tell(c.Receiving(self.id))
                self._feed_inbox()
            case m.Returned(value):
                self._finish(c.Returned(self.id, now, value))
            case m.Raised():
                self.fail(endings.of_raised(message, self.limits))

    def _finish(self, terminal: c.Returned | c.Error) -> None:
        self.ended = True
        if self._timer:
            self._timer.cancel()
        self._tell(terminal)
        self._owner.told_its_end(self)
        if self._launched:
            self._loop.call_later(EXIT_SECONDS, self._kill)

    def _kill(self) -> None:
        self._owner.launcher.kill(self._launched.launch_id, signal.SIGKILL)

    def _tell_text(self, message: c.Sent | c.Printed) -> None:
        if self._tell(message):
            self._unshown += c.weight(message.text)
            self._socket.hold(self._unshown > MAX_UNSHOWN)

    def _tell(self, message: c.FromHub) -> bool:
        """Whether its client is still there."""
        return self._owner.tell(self.client, message)
