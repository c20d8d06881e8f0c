"""One inferlet as the hub sees it: what it was launched with, its socket, its inbox, its end.

Tells those who hear of it what happens. Does not know the other processes.
"""

import asyncio
import signal
import time
from contextlib import nullcontext
from typing import Protocol

from ipc import client as c
from ipc import codec, frames
from ipc import messages as m
from ipc.types import Limits
from pie_cli.engine import checks, endings, file_store, happenings
from pie_cli.engine.clients import Client, Clients
from pie_cli.engine.endings import Ending
from pie_cli.engine.file_inbox import FileInbox
from pie_cli.engine.file_store import FileStore
from pie_cli.engine.frame_socket import Frames, FrameSocket
from pie_cli.engine.happenings import Happenings
from pie_cli.engine.inboxes import Inbox
from pie_cli.engine.launcher import Exit, Launched, Launcher
from pie_cli.engine.metrics import Counts
from pie_cli.engine.printing import Printing
from pie_cli.engine.quotas import Meter, Speakers
from pie_cli.engine.record import Record
from pie_cli.engine.shares import Memory
from pie_cli.engine.views import Views

EXIT_SECONDS = 5.0  # that a process may take to leave after its terminal event


class Owner(Protocol):
    """What a process needs of the hub."""

    launcher: Launcher
    files_folder: str
    happenings: Happenings
    counts: Counts
    speakers: Speakers
    clients: Clients
    memory: Memory

    def tell(self, client: Client, message: c.FromHub) -> bool: ...
    def relay(self, process: "Process", commands: bytes) -> None: ...
    def send_to(self, sender: "Process", message: m.SendTo) -> str:
        """The outcome, for SentTo."""
        ...

    def told_its_end(self, process: "Process") -> None: ...


class Process:
    """From the client's Run to the exit of the operating system's process."""

    def __init__(
        self, owner: Owner, record: Record, run: c.Run, client: Client, limits: Limits
    ) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.number, self.id, self.record = record.number, record.id, record
        self.run, self.client, self.limits = run, client, limits
        self.born = time.monotonic()
        self.inbox: Inbox[Client] = Inbox(limits.inbox)
        self.files = FileInbox(owner.files_folder)
        self.views = Views(owner.tell)
        if not run.detach:
            self.views.add(client)
        self.position: int | None = None  # in the queue, from 1
        self.announced: int | None = None  # the position that its client knows
        self.ended = False  # the terminal event was told
        self.receiving = False
        self._asks_for_input = False
        self.has_state = False  # in the worker
        self._waits_for_worker = False  # not read until there is one
        self._ending: Ending | None = None  # why it is being killed
        self._was_asked_to_leave = False
        self._output = Meter(limits.output)
        self._printing = Printing(self._printed)
        self._store = FileStore(run.files_folder or owner.files_folder, self.id)
        self._launched: Launched | None = None
        self._socket: FrameSocket | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> str:
        if self._launched:
            return "running"
        return "waiting" if self.position is None else "queued"

    @property
    def pid(self) -> int | None:
        return self._launched.pid if self._launched else None

    # ---- life

    def start(self, launched: Launched, launch: m.Launch) -> None:
        """The operating system's process exists: give it what it is to run."""
        self._launched = launched
        self._socket = FrameSocket(
            launched.sock, self._on_frames, self._feed, self.end, self.limits.messages,
            self._owner.speakers, self._owner.memory,
        )  # fmt: skip
        self.record.sandbox = self._owner.launcher.tier
        self.record.launched_at = time.time()
        self._owner.happenings.add(self.record.launched_at, self.number, "launched")
        told = c.Launched(self.run.request, self.id, self.record.launched_at, self.record.sandbox)
        self._owner.tell(self.client, told)
        self._socket.write(frames.pack(frames.HUB, codec.encode(launch)), trusted=True)
        if self.ended:
            self._kill()
        elif (timeout := self.run.timeout) is not None:
            self._timer = self._loop.call_later(timeout, self.end, endings.timed_out(timeout))

    def end(self, ending: Ending) -> None:
        """Kill it; those who hear of it are told of `ending` once it is gone. The first counts."""
        if self.ended or self._ending:
            return
        self._ending = ending
        if self._launched:
            self._kill()
        else:
            self.fail(ending)

    def leave(self) -> None:
        """Ask it to end `main`, since the engine leaves."""
        self._was_asked_to_leave = True
        self.write_message(m.Leave())
        if not self._launched:
            self.fail(endings.stopped())

    def fail(self, ending: Ending) -> None:
        """Tell of the end now, whatever becomes of the process."""
        if self.ended:
            return
        self._finish(c.Error(
            self.id, time.time(), ending.error, ending.message, ending.traceback, ending.exit,
            ending.limit,
        ))  # fmt: skip

    def exited(self, exit: Exit) -> None:
        """It is gone: read what it left, and tell how it ended unless it did itself."""
        if self._socket:
            self._socket.drain()
            self._socket.close()
        own = endings.of_exit(exit, self.limits)
        self.fail(self._ending or own)
        self.close()

    def close(self) -> None:
        """Leave no file behind that is not complete."""
        self.files.close()
        self._store.close()

    # ---- to the inferlet

    def write_events(self, events: bytes) -> None:
        if self._socket:
            self._owner.happenings.add_frame(time.time(), self.number, happenings.DOWN, events)
            self._owner.counts.relayed("down", len(events))
            self._socket.write(frames.pack(frames.ENGINE, events))

    def write_message(self, message: m.ToInferlet) -> None:
        if self._socket:
            self._socket.write(frames.pack(frames.HUB, codec.encode(message)))

    def put(
        self, message: m.Inbox, sender: Client | None = None, *, even_full: bool = False
    ) -> bool:
        """Into its inbox; whether there was room. `sender` is told once the app has it."""
        has_room = self.inbox.put(message, sender, even_full=even_full)
        self._feed()
        return has_room

    def close_inbox(self) -> None:
        self.inbox.close()
        self.files.end()
        self._feed()

    def put_file(self, client: Client, part: c.FilePart) -> tuple[str, str] | None:
        """What became of the file and why, once that is known."""
        outcome = self.files.put((client, part.request), part)
        self._feed()
        return outcome

    def _feed(self) -> None:
        """Give it messages and files that it waits for, as long as its socket takes them."""
        if not self._socket:
            return
        while self.receiving and self._socket.has_room and (message := self.inbox.next()):
            self.write_message(message)
        if self._socket.has_room:
            for part in self.files.next_parts():
                self.write_message(part)
                if not self._socket.has_room:
                    return

    # ---- those who hear of it

    def attach(self, client: Client, *, past: bool) -> None:
        """From now on it hears of all, and first of what is kept."""
        self.views.add(client)
        for event in self.record.past() if past else ():
            self.views.tell_one(client, event)
        if self._asks_for_input:
            self.views.tell_one(client, c.Receiving(self.id))
        self._hold()

    def shown(self, client: Client, size: int) -> None:
        """One who hears of it is that much less behind."""
        self.views.shown(client, size)
        self._hold()

    def forget(self, client: Client) -> None:
        """That client hears no more of it, and sends no more."""
        self.views.remove(client)
        self.files.forget_all_of(client)
        self._hold()

    def wait_for_worker(self, waits: bool) -> None:
        """Whether to leave unread what it writes, since there is no worker to take it."""
        self._waits_for_worker = waits
        self._hold()

    def _hold(self) -> None:
        if self._socket:
            self._socket.hold(self._waits_for_worker or self.views.is_behind)

    # ---- from the inferlet

    def _on_frames(self, found: Frames) -> None:
        """All frames of one read, in order: what is printed in a row is one event."""
        with self._owner.clients.together() if len(found) > 1 else nullcontext():
            try:
                for kind, body in found:
                    self._on_frame(kind, body)
            finally:
                self._printing.flush()

    def _on_frame(self, kind: int, body: bytes) -> None:
        if self.ended or self._ending:
            return
        if kind == frames.ENGINE:
            self._printing.flush()
            self._owner.happenings.add_frame(time.time(), self.number, happenings.UP, body)
            self._owner.counts.relayed("up", len(body))
            self._owner.relay(self, body)
        else:
            message = codec.decode_from_inferlet(body)
            checks.check(message)
            if isinstance(message, m.Output):
                self._print(message)
            else:
                self._printing.flush()
                self._on_message(message)

    def _print(self, message: m.Output) -> None:
        self._printing.add(message.stream, message.text)
        if not self._output.add(len(message.text.encode())):
            self._printing.flush()
            self.end(endings.beyond_output(self._output.limit))

    def _printed(self, stream: str, text: str) -> None:
        self._say(c.Printed(self.id, time.time(), stream, text))

    def _on_message(self, message: m.FromInferlet) -> None:
        now = time.time()
        match message:
            case m.Send(is_json, text):
                self._say(c.Sent(self.id, now, is_json, text))
            case m.Receiving() if not self.receiving:  # once, whatever it says
                self.receiving = True
                self._wait_for_input()
            case m.Received(count):
                self._received(count)
            case m.SendTo():
                self._note("sent to", now, len(message.text))
                self.write_message(m.SentTo(self._owner.send_to(self, message)))
            case m.SendFilePart():
                self._store_part(message, now)
            case m.ReceivingFile():
                self.files.ask()
                self._wait_for_input()
            case m.Returned(value):
                self._finish(c.Returned(self.id, now, value))
            case m.Raised("CancelledError") if self._was_asked_to_leave:
                self.fail(endings.stopped())
            case m.Raised():
                self.fail(endings.of_raised(message, self.limits))

    def _wait_for_input(self) -> None:
        """Clients read stdin from the first time on: its end is theirs for files, too."""
        if not self._asks_for_input:
            self._asks_for_input = True
            self.views.tell(c.Receiving(self.id))
        self._feed()

    def _received(self, count: int) -> None:
        self._note("received", time.time(), count=count)
        counts: dict[Client, int] = {}
        for sender in self.inbox.received(count):
            counts[sender] = counts.get(sender, 0) + 1
        for client, number in counts.items():
            self._owner.tell(client, c.Taken(self.id, number))
        self._feed()

    def _store_part(self, part: m.SendFilePart, now: float) -> None:
        if stored := self._store.put(part, self.id, now):
            self._say(stored)
        if self._store.is_beyond:
            self.end(endings.beyond_files(file_store.MAX_BYTES))

    def _say(self, event: c.Sent | c.Printed | c.Stored) -> None:
        match event:
            case c.Sent(text=text):
                self._note("sent", event.time, len(text))
            case c.Printed(text=text):
                self._note("printed", event.time, len(text), count=0)
                self._owner.counts.output_bytes += len(text)
            case c.Stored(size=size):
                self._note("file", event.time, size, count=0)
                self._owner.counts.files += 1
                self._owner.counts.file_bytes += size
        self.record.add(event)
        self.views.tell(event)
        self._hold()

    def _note(self, kind: str, now: float, size: int = 0, count: int = 1) -> None:
        self._owner.happenings.add(now, self.number, kind, size)
        if count:
            self._owner.counts.messages[kind.replace(" ", "_")] += count

    def _finish(self, terminal: c.Returned | c.Error) -> None:
        self.ended = True
        self.record.terminal = terminal
        self._owner.happenings.add(terminal.time, self.number, "ended")
        self._owner.counts.ends[self.record.exit] += 1
        if self._timer:
            self._timer.cancel()
        if self.run.detach and not self._launched:  # its client waits for word of the launch
            self._owner.tell(self.client, terminal)
        self.views.tell(terminal)
        self._owner.told_its_end(self)
        if self._launched:
            self._loop.call_later(EXIT_SECONDS, self._kill)

    def _kill(self) -> None:
        self._owner.launcher.kill(self._launched.launch_id, signal.SIGKILL)
