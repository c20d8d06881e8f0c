"""One process as the Python client knows it: what it said, what came of it, and who waits for that.

Everything is a future; `client.py` waits for them in its two ways.
"""

import hashlib
import json
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipc import client as c
from pie_cli import client_errors as errors
from pie_cli.client_link import Link, settle

END = object()  # instead of a message: there are no more


@dataclass(frozen=True)
class File:
    """A file that the app sent: where it is stored, how large it is, and its SHA-256."""

    path: Path
    size: int
    sha256: str

    def read(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True)
class LogEntry:
    """Something that the app printed. `time`: seconds since 1970."""

    time: float
    stream: str  # "stdout" | "stderr"
    text: str


class Core:
    """Told by the link's thread, asked from any."""

    def __init__(self, link: Link, id: str, app: str) -> None:
        self.link, self.id, self.app = link, id, app
        self.files: list[File] = []
        self._lock = threading.Lock()
        self._messages: deque[tuple[Any, int]] = deque()  # with their weights
        self._unshown = 0  # what has arrived, and the hub was not told to be dealt with
        self._takers: deque[Future] = deque()
        self._waiters: list[Future] = []
        self._end: c.Returned | errors.PieError | None = None

    # ---- told

    def hear(self, message: c.FromHub) -> None:
        match message:
            case c.Sent(_, _, is_json, text):
                self._arrived(loads(text) if is_json else text, c.weight(text))
            case c.Stored(_, _, _, path, size, sha256, error):
                if not error:
                    self.files.append(File(Path(path), size, sha256))
                self.link.send(c.Shown(self.id, c.weight(path)))
            case c.Printed(_, _, _, text):
                self.link.send(c.Shown(self.id, c.weight(text)))
            case c.Returned():
                self._ended(message)
            case c.Error():
                self._ended(errors.of_end(message))

    def lose(self, error: errors.EngineError) -> None:
        self._ended(error)

    def _arrived(self, message: Any, weight: int) -> None:
        with self._lock:
            while self._takers:
                if settle(self._takers.popleft(), message):
                    self._show(weight)
                    return
            self._messages.append((message, weight))
            self._unshown += weight
            if self._waiters:  # nobody may take them before the end
                self._show_all()

    def _ended(self, end: c.Returned | errors.PieError) -> None:
        with self._lock:
            self._end = end
            for taker in self._takers:
                settle(taker, END)
            self._takers.clear()
            for waiter in self._waiters:
                self._give_end(waiter)
            self._waiters.clear()

    # ---- asked

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def next_message(self) -> Future:
        """The oldest message that nobody took, or END."""
        future: Future = Future()
        with self._lock:
            if self._messages:
                message, weight = self._messages.popleft()
                future.set_result(message)
                shown = min(weight, self._unshown)
                self._unshown -= shown
                self._show(shown)
            elif self._end is not None:
                future.set_result(END)
            else:
                self._takers.append(future)
        return future

    def give_back(self, future: Future) -> None:
        """Whoever waited for that message has gone: the next one gets it."""
        if future.cancelled() or not future.done() or future.exception() is not None:
            return
        if (message := future.result()) is END:
            return
        with self._lock:
            while self._takers:
                if settle(self._takers.popleft(), message):
                    return
            self._messages.appendleft((message, 0))

    def result(self) -> Future:
        """The value of `main`, or its error. While one waits, messages are kept without a bound."""
        future: Future = Future()
        with self._lock:
            if self._end is not None:
                self._give_end(future)
            else:
                self._waiters.append(future)
                self._show_all()
        return future

    def send(self, message: Any) -> Future:
        is_json = not isinstance(message, str)
        text = json.dumps(message, allow_nan=False) if is_json else message
        return self.link.ask(lambda number: c.Message(self.id, is_json, text, number), self._taken)

    def send_file(self, data: bytes) -> Future:
        """Parts are sent at once; the engine answers after the last."""
        if len(data) > c.MAX_FILE:
            raise errors.BadRequest(f"a file may have {c.MAX_FILE >> 20} MiB, not {len(data):,}")

        def parts(number: int) -> c.FilePart:
            *first, last = range(0, max(len(data), 1), c.FILE_PART)
            for start in first:
                part = data[start : start + c.FILE_PART]
                self.link.send_now(c.FilePart(number, self.id, len(data), part))
            digest = hashlib.sha256(data).digest()
            return c.FilePart(number, self.id, len(data), data[last:], digest)

        return self.link.ask(parts, self._taken)

    def close_input(self) -> None:
        self.link.send(c.CloseInput(self.id))

    def kill(self) -> Future:
        return self.link.ask_in_turn(c.Kill((self.id,)), c.Killed)

    def logs(self) -> Future:
        return self.link.ask(lambda number: c.ReadLog(number, self.id), self._log)

    # ---- what answers mean

    def _taken(self, answer: c.Answered) -> bool:
        match answer.outcome:
            case c.ACCEPTED:
                return True
            case c.UNKNOWN:
                raise errors.NoSuchProcess(f"the process `{self.id}` has ended")
            case c.OTHER_CLIENT:
                raise errors.NotYours(f"`{self.id}` belongs to another client")
            case c.FULL:
                raise errors.InboxFull(f"the inbox of `{self.id}` is full")
            case c.CLOSED:
                raise errors.BadRequest(f"the input of `{self.id}` is closed")
        raise errors.PieError(
            f"`{self.id}` did not get the file: {answer.reason or answer.outcome}"
        )

    def _log(self, answer: c.Log | c.Unknown) -> list[LogEntry]:
        if isinstance(answer, c.Unknown):
            raise errors.NoSuchProcess(f"no process `{self.id}`")
        return [LogEntry(each.time, each.stream, each.text) for each in answer.printed]

    def _give_end(self, future: Future) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(self._end, errors.PieError):
            future.set_exception(self._end)
            return
        try:
            future.set_result(json.loads(self._end.value))
        except RecursionError:
            future.set_exception(errors.PieError(f"the value of `{self.id}` is nested too deeply"))

    def _show(self, size: int) -> None:
        if size and self._end is None:
            self.link.send(c.Shown(self.id, size))

    def _show_all(self) -> None:
        self._show(self._unshown)
        self._unshown = 0


def loads(text: str) -> Any:
    """The value of JSON text; the text itself where it is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        return text
