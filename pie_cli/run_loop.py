"""Follows the processes of one `pie run` to their ends. Shows through a Screen, parses nothing."""

import os
import signal
import time
from typing import TYPE_CHECKING, Self

from ipc import client as c
from pie_cli import stopped
from pie_cli.connection import LOOK_SECONDS, Connection, EngineLost
from pie_cli.output import Interrupted, note
from pie_cli.screen import Screen
from pie_cli.stdin_lines import StdinLines

if TYPE_CHECKING:
    from pie_cli.changes import Changes

INTERRUPT_SECONDS = 5.0  # in which the hub answers that an interrupted process has ended
SHOWN_STEP = 1 << 20  # in units of `weight`
USAGE, ENGINE_FAILED, INTERRUPTED = 2, 3, 130


class Copy:
    """One launched app: its id once known, its end once told."""

    def __init__(self, request: c.Run | None, app: str, detach: bool = False) -> None:
        self.request, self.app, self.detach = request, app, detach
        self.process = ""
        self.exit: int | None = None
        self.returned: c.Returned | None = None
        self.shown = 0  # of its messages, not told to the hub yet


class RunLoop:
    """Launches the runs on a connection and stays until all have ended, or are detached."""

    def __init__(
        self, connection: Connection, runs: list[c.Run], screen: Screen, stdin: StdinLines | None,
        changes: "Changes | None" = None,
    ) -> None:  # fmt: skip
        """A change of one of the files of `changes` ends the processes: `changed` is then True."""
        self._connection, self._screen, self._stdin = connection, screen, stdin
        self._copies = [Copy(run, run.app, run.detach) for run in runs]
        self._by_process: dict[str, Copy] = {}
        self._num_shown = 0  # copies whose result was shown or is missing
        self._receiving = False
        self._interrupts = Interrupts()
        self._interrupted_at: float | None = None
        self.refusal: c.Refused | None = None
        self._changes, self.changed = changes, False
        self._stopped: dict[int, str] = {}  # parts of the engine, as was told
        self._heard_at = time.monotonic()

    @property
    def interrupted(self) -> bool:
        """Whether there was a signal, be it after the last process's end."""
        return self._interrupts.count > 0

    def run(self) -> int:
        """The exit code. Raises EngineLost after all that could be shown was."""
        with self._interrupts:
            self._begin()
            try:
                while any(copy.exit is None for copy in self._copies):
                    self._step()
            except EngineLost as error:
                self._lose_all(str(error))
                raise
            finally:
                self._screen.close()
        return max(copy.exit or 0 for copy in self._copies)

    def _begin(self) -> None:
        for copy in self._copies:
            self._connection.send(copy.request)

    def _step(self) -> None:
        ended = self._connection.engine_ended()  # before reading: its last words come first
        idle = True
        while message := self._connection.receive():
            idle = False
            self._heard_at = time.monotonic()
            if not self._is_of_detached(message):
                self._handle(message)
        if ended and idle:
            raise self._connection.lost()
        self._feed_stdin()
        if all(copy.exit is not None for copy in self._copies):
            return
        watched = [self._interrupts.descriptor]
        if self._changes is not None and not self.changed:
            watched.append(self._changes.descriptor)
        if self._stdin and self._stdin.wants_reading:
            watched.append(self._stdin.descriptor)
        self._look_for_stopped()
        ready = self._connection.wait(self._patience(), watched)
        if self._interrupts.descriptor in ready:
            os.read(self._interrupts.descriptor, 64)
            self._interrupt()
        elif self._changes and self._changes.descriptor in ready:
            if self._changes.changed():
                self.changed = True
                self._kill()
        elif self._stdin and self._stdin.descriptor in ready:
            self._stdin.read()

    def _look_for_stopped(self) -> None:
        """Say why nothing happens, once."""
        if time.monotonic() < self._heard_at + LOOK_SECONDS:
            return
        parts = self._connection.stopped()
        if parts and parts != self._stopped:
            note("the run waits: " + "; ".join(stopped.told(parts)))
        self._stopped = parts

    # ---- what the hub says

    def _is_of_detached(self, message: c.FromHub) -> bool:
        """What a detached process says at once may still come with the word of its launch."""
        copy = self._by_process.get(getattr(message, "process", None))
        return copy is not None and copy.detach

    def _handle(self, message: c.FromHub) -> None:
        match message:
            case c.Progress(fraction, text):
                self._screen.progress(fraction, text)
            case c.Queued():
                self._queued(message)
            case c.Launched():
                self._launched(message)
            case c.Refused():
                self.refusal = message
                self._end(self._copies[message.request], USAGE)
            case c.Sent():
                self._screen.sent(message)
                self._shown(message)
            case c.Printed():
                self._screen.printed(message)
                self._shown(message)
            case c.Stored():
                self._screen.stored(message)
                self._shown(message)
            case c.Receiving():
                self._receiving = True
            case c.Taken(process, count) if self._stdin:
                self._stdin.taken(process, count)
            case c.Returned(process):
                copy = self._by_process[process]
                self._screen.returned(message)
                copy.returned = message
                self._end(copy, 0)
            case c.Error(process):
                self._failed(message)
            case c.EngineFailed(text, hint):
                raise self._connection.lost(text, hint)

    def _shown(self, message: c.Sent | c.Printed | c.Stored) -> None:
        """Tell the hub now and then, so that a process waits for a slow reader of our output."""
        copy = self._by_process[message.process]
        copy.shown += c.weight(message.path if isinstance(message, c.Stored) else message.text)
        if copy.shown > SHOWN_STEP:
            self._connection.send(c.Shown(message.process, copy.shown))
            copy.shown = 0

    def _queued(self, event: c.Queued) -> None:
        copy = self._copies[event.request]
        self._screen.queued(event)
        copy.process = event.process
        self._by_process[event.process] = copy
        if copy.detach:  # it is launched without us
            self._end(copy, 0)

    def _launched(self, event: c.Launched) -> None:
        copy = self._copies[event.request]
        copy.process = event.process
        self._by_process[event.process] = copy
        self._screen.launched(event, copy.app, self._connection.card.model)
        if copy.detach:
            self._end(copy, 0)
        elif self._interrupted_at is not None or self.changed:
            self._connection.send(c.Kill((event.process,), interrupted=True))

    def _failed(self, event: c.Error) -> None:
        copy = self._by_process.get(event.process)
        if copy is None:  # it ended before its launch
            copy = next(copy for copy in self._copies if not copy.process and copy.exit is None)
        try:
            if self.changed and event.exit == INTERRUPTED:
                self._screen.lost(event)
            else:
                self._screen.failed(event)
        except BrokenPipeError:
            raise
        except OSError:  # a full stderr: the exit code is all that can be said
            pass
        self._end(copy, event.exit)

    def _end(self, copy: Copy, exit: int) -> None:
        copy.exit = exit
        if self._stdin:
            self._stdin.remove(copy.process)
        while self._num_shown < len(self._copies):
            first = self._copies[self._num_shown]
            if first.exit is None:
                return
            self._num_shown += 1
            if first.returned:
                self._screen.result(first.returned)

    def _lose_all(self, reason: str) -> None:
        now = time.time()
        for copy in self._copies:
            if copy.exit is None and copy.process and not copy.detach:
                self._screen.lost(
                    c.Error(copy.process, now, "EngineFailed", reason, "", ENGINE_FAILED)
                )

    # ---- stdin

    def _feed_stdin(self) -> None:
        if not self._stdin or not self._receiving or any(not x.process for x in self._copies):
            return
        for process, copy in self._by_process.items():
            if copy.exit is None:
                self._stdin.add(process)
        while (line := self._stdin.next()) is not None:
            for process in self._stdin.processes:
                self._connection.send(c.Message(process, False, line))
        if self._stdin.takes_end():
            self._end_of_stdin(self._stdin.processes)

    def _end_of_stdin(self, processes: list[str]) -> None:
        for process in processes:
            self._connection.send(c.CloseInput(process))

    # ---- Ctrl-C

    def _interrupt(self) -> None:
        if self._interrupted_at is not None:
            raise Interrupted  # asked twice: do not wait
        self._interrupted_at = time.monotonic()
        self._screen.interrupted()
        if self._kill() < sum(copy.exit is None for copy in self._copies):
            raise Interrupted  # those not launched yet end with this client

    def _kill(self) -> int:
        """End the processes; how many there are."""
        live = tuple(id for id, copy in self._by_process.items() if copy.exit is None)
        if live:
            self._connection.send(c.Kill(live, interrupted=True))
        return len(live)

    def _patience(self) -> float:
        if self._interrupted_at is None:
            return LOOK_SECONDS
        left = self._interrupted_at + INTERRUPT_SECONDS - time.monotonic()
        if left <= 0:
            note("the engine does not answer; the process ends with this command")
            raise Interrupted
        return left


class Interrupts:
    """Counts SIGINT and SIGTERM, which do nothing else meanwhile. `descriptor`: readable after one.

    A third one, should the first find nobody waiting, ends this process.
    """

    def __enter__(self) -> Self:
        self.count = 0
        self.descriptor, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A handler runs between two steps of Python, which may be after the wait: this is at once.
        self._woken_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken_before)
        os.close(self.descriptor)
        os.close(self._writer)

    def _on_signal(self, number: int, _: object) -> None:
        self.count += 1
        if self.count > 2:
            os._exit(INTERRUPTED)
