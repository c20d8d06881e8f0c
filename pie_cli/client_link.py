"""The thread behind the Python client: it alone touches the connection. Everything that is asked
is a future, which blocking and asyncio callers both can wait for.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from ipc import client as c
from pie_cli.client_errors import EngineError
from pie_cli.connection import Connection


class Hearer(Protocol):
    """What is told of one process, in the link's thread."""

    def hear(self, message: c.FromHub) -> None: ...
    def lose(self, error: EngineError) -> None: ...


class Link:
    """Requests out, answers and events in. Every method may be called from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._answers: dict[int, Callable[[c.FromHub], None]] = {}
        self._pending: dict[int, Future] = {}
        self._in_turn: dict[type, deque[Future]] = {c.Processes: deque(), c.Killed: deque()}
        self._hearers: dict[str, Hearer] = {}
        self._last_request = 0
        self._lost: EngineError | None = None
        self._is_over = False  # nobody takes tasks, and the pipe is closed
        self._lock = threading.Lock()  # of `_is_over`, and of what may be done before
        self._thread = threading.Thread(target=self._run, name="pie client", daemon=True)
        self._thread.start()

    def send(self, message: c.FromClient) -> None:
        """Without an answer."""
        self._do(lambda: self._connection.send(message))

    def send_now(self, message: c.FromClient) -> None:
        """In the link's thread only."""
        self._connection.send(message)

    def ask(
        self,
        make: Callable[[int], c.FromClient],
        then: Callable[[c.FromHub], Any] | None = None,
    ) -> Future:
        """The answer to a request that `make` gives its number, or what `then` makes of it.

        `then` runs in the link's thread; what it raises is the future's. It may give None to wait
        for another answer.
        """
        future: Future = Future()

        def start() -> None:
            if self._refuse(future):
                return
            self._last_request += 1
            self._pending[self._last_request] = future
            self._answers[self._last_request] = then or (lambda answer: answer)
            self._connection.send(make(self._last_request))

        self._do(start)
        return future

    def ask_in_turn(self, message: c.FromClient, kind: type) -> Future:
        """The answer of a kind that carries no number: such answers come in the order asked."""
        future: Future = Future()

        def start() -> None:
            if not self._refuse(future):
                self._in_turn[kind].append(future)
                self._connection.send(message)

        self._do(start)
        return future

    def hear(self, process: str, hearer: Hearer) -> None:
        """Events of the process go to `hearer` from now on. In the link's thread only."""
        self._hearers[process] = hearer

    def hearer(self, process: str) -> Hearer | None:
        return self._hearers.get(process)

    def close(self) -> None:
        """Stop the thread, and close the connection."""
        self._put(None)
        self._thread.join()

    # ---- in the thread

    def _do(self, task: Callable[[], None]) -> None:
        if not self._put(task):
            raise EngineError("the client is closed")

    def _put(self, task: Callable[[], None] | None) -> bool:
        """Whether the thread will do it; None ends the thread."""
        with self._lock:
            if self._is_over:
                return False
            self._tasks.put(task)
            with suppress(BlockingIOError):  # it is awake
                os.write(self._writer, b"!")
            return True

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._lose(EngineError("the client is closed"))
            with self._lock:
                self._is_over = True
                os.close(self._reader)
                os.close(self._writer)
            try:
                while not self._tasks.empty():  # came after the last that was done: refused
                    if task := self._tasks.get():
                        task()
            finally:
                self._connection.close()

    def _turn(self) -> bool:
        """Everything that there is to do now, and waiting; False at the end."""
        ended = self._lost is None and self._connection.engine_ended()  # before reading
        while (message := self._connection.receive()) is not None:
            self._handle(message)
        if ended:
            lost = self._connection.lost()
            self._lose(EngineError(str(lost), lost.hint, lost.log))
        while not self._tasks.empty():
            if (task := self._tasks.get()) is None:
                return False
            task()
        with suppress(BlockingIOError):
            if self._lost is None:
                self._connection.wait(None, [self._reader])
            else:  # the engine's end would be told for ever
                os.set_blocking(self._reader, True)
            os.read(self._reader, 4096)
        return True

    def _handle(self, message: c.FromHub) -> None:
        if waiting := self._in_turn.get(type(message)):
            settle(waiting.popleft(), message)
        elif isinstance(message, c.EngineFailed):
            self._lose(EngineError(message.message, message.hint, self._connection.card.log))
        elif (number := getattr(message, "request", 0)) in self._answers:
            self._answer(number, message)
        elif hearer := self._hearers.get(getattr(message, "process", "")):
            hearer.hear(message)
            if isinstance(message, c.Returned | c.Error):
                del self._hearers[message.process]

    def _answer(self, number: int, message: c.FromHub) -> None:
        try:
            value = self._answers[number](message)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._forget(number).set_exception(error)
            return
        if value is not None:
            settle(self._forget(number), value)

    def _forget(self, number: int) -> Future:
        del self._answers[number]
        return self._pending.pop(number)

    def _refuse(self, future: Future) -> bool:
        if self._lost is not None:
            future.set_exception(self._lost)
        return self._lost is not None

    def _lose(self, error: EngineError) -> None:
        """All that waits, and all that will be asked, fails."""
        self._lost = self._lost or error
        waiting = [*self._pending.values(), *(f for line in self._in_turn.values() for f in line)]
        hearers = list(self._hearers.values())
        for known in (self._pending, self._answers, self._hearers, *self._in_turn.values()):
            known.clear()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._lost)
        for hearer in hearers:
            hearer.lose(self._lost)


def settle(future: Future, value: Any) -> bool:
    """Whether somebody still waits for it."""
    if not future.set_running_or_notify_cancel():
        return False
    future.set_result(value)
    return True
