"""Follows the processes of one `pie run` to their ends. Shows through a Screen, parses nothing."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ipc import client as c
from pie_cli.connection import Connection, EngineLost
from pie_cli.output import note
from pie_cli.screen import Screen
from pie_cli.stdin_lines import StdinLines

INTERRUPT_SECONDS = 5.0  # in which the hub answers that an interrupted process has ended
SHOWN_STEP = 1 << 20  # in units of `weight`
USAGE, ENGINE_FAILED, INTERRUPTED = 2, 3, 130


class Copy:
    """One launched app: its id once known, its end once told."""

    def __init__(self, run: c.Run) -> None:
        self.run = run
        self.process = ""
        self.exit: int | None = None
        self.returned: c.Returned | None = None
        self.shown = 0  # of its messages, not told to the hub yet


class RunLoop:
    """Launches the runs on a connection and stays until all have ended, or are detached."""

    def __init__(
        self, connection: Connection, runs: list[c.Run], screen: Screen, stdin: StdinLines | None
    ) -> None:
        self._connection, self._screen, self._stdin = connection, screen, stdin
        self._copies = [Copy(run) for run in runs]
        self._by_process: dict[str, Copy] = {}
        self._num_shown = 0  # copies whose result was shown or is missing
        self._receiving = False
        self._interrupted_at: float | None = None
        self.refusal: c.Refused | None = None

    def run(self) -> int:
        """The exit code. Raises EngineLost after all that could be shown was."""
        with interrupts() as self._interrupts:
            for copy in self._copies:
                self._connection.send(copy.run)
            try:
                while any(copy.exit is None for copy in self._copies):
                    self._step()
            except EngineLost as error:
                self._lose_all(str(error))
                raise
            finally:
                self._screen.close()
        return max(copy.exit or 0 for copy in self._copies)

    def _step(self) -> None:
        ended = self._connection.engine_ended()  # before reading: its last words come first
        idle = True
        while message := self._connection.receive():
            idle = False
            if not self._is_of_detached(message):
                self._handle(message)
        if ended and idle:
            raise self._connection.lost()
        self._feed_stdin()
        if all(copy.exit is not None for copy in self._copies):
            return
        watched = [self._interrupts]
        if self._stdin and self._stdin.wants_reading:
            watched.append(self._stdin.descriptor)
        ready = self._connection.wait(self._patience(), watched)
        if self._interrupts in ready:
            os.read(self._interrupts, 64)
            self._interrupt()
        elif self._stdin and self._stdin.descriptor in ready:
            self._stdin.read()

    # ---- what the hub says

    def _is_of_detached(self, message: c.FromHub) -> bool:
        """What a detached process says at once may still come with the word of its launch."""
        copy = self._by_process.get(getattr(message, "process", None))
        return copy is not None and copy.run.detach

    def _handle(self, message: c.FromHub) -> None:
        match message:
            case c.Progress(fraction, text):
                self._screen.progress(fraction, text)
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

    def _shown(self, message: c.Sent | c.Printed) -> None:
        """Tell the hub now and then, so that a process waits for a slow reader of our output."""
        copy = self._by_process[message.process]
        copy.shown += c.weight(message.text)
        if copy.shown > SHOWN_STEP:
            self._connection.send(c.Shown(message.process, copy.shown))
            copy.shown = 0

    def _launched(self, event: c.Launched) -> None:
        copy = self._copies[event.request]
        copy.process = event.process
        self._by_process[event.process] = copy
        self._screen.launched(event, copy.run.app, self._connection.card.model)
        if copy.run.detach:
            self._end(copy, 0)
        elif self._interrupted_at is not None:
            self._connection.send(c.Kill((event.process,), interrupted=True))

    def _failed(self, event: c.Error) -> None:
        copy = self._by_process.get(event.process)
        if copy is None:  # it ended before its launch
            copy = next(copy for copy in self._copies if not copy.process and copy.exit is None)
        self._screen.failed(event)
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
            if copy.exit is None and copy.process and not copy.run.detach:
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
            for process in self._stdin.processes:
                self._connection.send(c.CloseInput(process))

    # ---- Ctrl-C

    def _interrupt(self) -> None:
        if self._interrupted_at is not None:
            raise KeyboardInterrupt  # asked twice: do not wait
        self._interrupted_at = time.monotonic()
        live = tuple(id for id, copy in self._by_process.items() if copy.exit is None)
        if live:
            self._connection.send(c.Kill(live, interrupted=True))
        if len(live) < sum(copy.exit is None for copy in self._copies):
            raise KeyboardInterrupt  # those not launched yet end with this client

    def _patience(self) -> float | None:
        if self._interrupted_at is None:
            return None
        left = self._interrupted_at + INTERRUPT_SECONDS - time.monotonic()
        if left <= 0:
            note("the engine does not answer; the process ends with this command")
            raise KeyboardInterrupt
        return left


@contextmanager
def interrupts() -> Iterator[int]:
    """A descriptor that is readable after SIGINT or SIGTERM, which then do nothing else.

    A second SIGINT, should the first find nobody waiting, ends this process.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    count = 0

    def on_signal(number: int, _: object) -> None:
        nonlocal count
        count += 1
        if count > 2:
            os._exit(INTERRUPTED)
        os.write(writer, b"!")

    before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
