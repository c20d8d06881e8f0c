"""The Python client: launches inferlets and talks to them, from programs and notebooks.

    from pie_cli.client import Client

    with Client() as pie:
        process = pie.launch("inferlets/completion.py", {"prompt": "The capital of France is"})
        print(process.result()["text"])

`AsyncClient` is the same for asyncio. A client may be shared between threads. The processes that it
launched end with it, unless they are detached. Errors are in `client_errors`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from ipc import client as c
from pie_cli.client_errors import (
    AppError, BadRequest, EngineError, InboxFull, LimitExceeded, NoSuchProcess, NotYours, PieError,
    ProcessError, ProcessKilled, ProcessTimeout, translated,
)  # fmt: skip
from pie_cli.client_launch import Launch, attached_core, launched_core, start
from pie_cli.client_link import Link
from pie_cli.client_process import END, Core, File, LogEntry

__all__ = [
    "AppError", "AsyncClient", "AsyncProcess", "BadRequest", "Client", "EngineError", "File",
    "InboxFull", "LimitExceeded", "LogEntry", "NoSuchProcess", "NotYours", "PieError", "Process",
    "ProcessError", "ProcessInfo", "ProcessKilled", "ProcessTimeout",
]  # fmt: skip

END_SECONDS = 5.0  # in which a process that was killed is gone
JSON = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass(frozen=True)
class ProcessInfo:
    """One live process, as in `pie ps`; None where a figure is not known yet."""

    id: str
    app: str
    client: str
    state: str
    age: float
    tokens_in: int | None
    tokens_out: int | None
    pages: int | None
    memory: int | None  # bytes beyond a bare launch, as in `--limit memory`
    sandbox: str
    model: str


class Process:
    """One process. Any of its methods may be called from any thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<Process {self.id} of {self.app}{'' if self.is_live else ', ended'}>"

    @property
    def id(self) -> str:
        """Its address for `send_to`, `pie attach` and the others."""
        return self._core.id

    @property
    def app(self) -> str:
        return self._core.app

    @property
    def is_live(self) -> bool:
        """Whether its end has not been told yet."""
        return not self._core.has_ended

    def messages(self, timeout: float | None = None) -> Iterator[JSON]:
        """Each message that the app sends, as it comes, to the end of the process.

        TimeoutError when none comes for `timeout` seconds; the next call goes on where this ended.
        """
        while True:
            future = self._core.next_message()
            try:
                message = wait(future, timeout)
            except BaseException:  # Ctrl-C in a notebook
                self._core.give_back(future)
                raise
            if message is END:
                return
            yield message

    def send(self, message: JSON) -> None:
        """A message for `session.receive()`: a str as text, anything else as JSON."""
        wait(self._core.send(message))

    def send_file(self, data: bytes | str | Path) -> None:
        """A file for `session.receive_file()`: its bytes, or its path."""
        wait(self._core.send_file(content(data)))

    def files(self) -> list[File]:
        """The files that the app has sent until now; after `result()` all of them."""
        return list(self._core.files)

    def result(self, timeout: float | None = None) -> JSON:
        """What `main` returned. Raises ProcessError when it did not, TimeoutError after `timeout`.

        Messages that come meanwhile are kept for `messages()`.
        """
        return wait(self._core.result(), timeout)

    def logs(self) -> list[LogEntry]:
        """What the app has printed until now, as far as the engine keeps it."""
        return wait(self._core.logs())

    def close_input(self) -> None:
        """Nothing more comes: `session.receive()` and `receive_file()` end with EOFError once all
        that came before was received."""
        self._core.close_input()

    def kill(self) -> None:
        """End it; nothing happens when it has ended."""
        wait(self._core.kill())


class Client:
    """A connection to an engine, which is started when none runs."""

    def __init__(
        self, model: str | None = None, *, client: str | None = None,
        keep_alive: float | None = None, engine: str | None = None, key: str | Path | None = None,
    ) -> None:  # fmt: skip
        """`model`: of the store, by default the default one. `client`: for whom this speaks, by
        default the user. `keep_alive`: seconds that an engine started by this stays when idle.
        `engine`: the address of one on another machine, `tcp://HOST:PORT`, and `key` the file that
        `pie key new` has made there; `engine="local"` is this machine's, whatever is set.

        Returns once the engine takes launches, which is before its model is loaded.
        """
        with translated():
            self.link = Link(start(model, client, keep_alive, engine, key))
        self._own: list[Core] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that this client launched and did not detach, and disconnect."""
        with suppress(EngineError):  # then they have ended
            live = [core for core in self._own if not core.has_ended]
            for core in live:
                wait(core.kill())
            for core in live:
                with suppress(ProcessError, TimeoutError):
                    wait(core.result(), END_SECONDS)
        self.link.close()

    def launch(
        self, app: str | Path | None = None, input: Mapping[str, Any] | None = None, *,
        source: str | None = None, files: Mapping[str, bytes | str | Path] | None = None,
        name: str | None = None, limits: Mapping[str, int | str] | None = None, priority: int = 0,
        salt: str = "", timeout: float | None = None, detach: bool = False,
        output: str | Path | None = None,
    ) -> Process:  # fmt: skip
        """Launch the app at a path, or of a `source` text.

        `files`: name -> bytes or path. `limits`: like `{"memory": "256M", "cpu": 60}`. `timeout`:
        seconds that the process may run. `output`: the folder for files that the app sends. A
        detached process outlives this client. Returns once the process runs.
        """
        what = Launch(
            app, input, source, files, name, limits, priority, salt, timeout, detach, output
        )
        core = wait(self._launch(what))
        if detach:  # its launcher hears of the launch alone
            return self.attach(core.id)
        self._own.append(core)
        return Process(core)

    def launch_all(self, launches: Iterable[Mapping[str, Any]]) -> list[Process]:
        """Many at once, each with the arguments of `launch`; none of them detached.

        Returns once all of them run.
        """
        futures = [self._launch(Launch(**each)) for each in launches]
        cores = [wait(future) for future in futures]
        self._own += cores
        return [Process(core) for core in cores]

    def _launch(self, launch: Launch) -> Future:
        with translated():
            return launched_core(self.link, launch)

    def attach(self, id: str) -> Process:
        """Join a process that lives, or is remembered: its messages come from the first."""
        return Process(wait(attached_core(self.link, id)))

    def processes(self) -> list[ProcessInfo]:
        """The live processes of the engine, whoever launched them."""
        return infos(wait(self.link.ask_in_turn(c.List(), c.Processes)))


class AsyncProcess:
    """As Process, for asyncio. A cancelled await loses no message."""

    def __init__(self, core: Core) -> None:
        self._core = core

    __repr__ = Process.__repr__
    id, app, is_live, files = Process.id, Process.app, Process.is_live, Process.files
    close_input = Process.close_input

    async def messages(self) -> AsyncIterator[JSON]:
        """Each message that the app sends, as it comes, to the end of the process."""
        while True:
            future = self._core.next_message()
            try:
                message = await soon(future)
            except BaseException:  # cancelled
                self._core.give_back(future)
                raise
            if message is END:
                return
            yield message

    async def send(self, message: JSON) -> None:
        """A message for `session.receive()`: a str as text, anything else as JSON."""
        await soon(self._core.send(message))

    async def send_file(self, data: bytes | str | Path) -> None:
        """A file for `session.receive_file()`: its bytes, or its path."""
        await soon(self._core.send_file(content(data)))

    async def result(self) -> JSON:
        """What `main` returned. Raises ProcessError when it did not."""
        return await soon(self._core.result())

    async def logs(self) -> list[LogEntry]:
        """What the app has printed until now, as far as the engine keeps it."""
        return await soon(self._core.logs())

    async def kill(self) -> None:
        """End it; nothing happens when it has ended."""
        await soon(self._core.kill())


class AsyncClient:
    """As Client, for asyncio: `async with AsyncClient() as pie`."""

    def __init__(
        self, model: str | None = None, *, client: str | None = None,
        keep_alive: float | None = None, engine: str | None = None, key: str | Path | None = None,
    ) -> None:  # fmt: skip
        """As for Client; the engine is found, or started, by `async with`."""
        options = {"client": client, "keep_alive": keep_alive, "engine": engine, "key": key}
        self._make = partial(Client, model, **options)
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(self._make)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._client.close)

    async def launch(
        self, app: str | Path | None = None, input: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncProcess:
        """As `Client.launch`."""
        process = await asyncio.to_thread(self._client.launch, app, input, **options)
        return AsyncProcess(process._core)

    async def attach(self, id: str) -> AsyncProcess:
        """Join a process that lives, or is remembered: its messages come from the first."""
        return AsyncProcess(await soon(attached_core(self._client.link, id)))

    async def processes(self) -> list[ProcessInfo]:
        """The live processes of the engine, whoever launched them."""
        return infos(await soon(self._client.link.ask_in_turn(c.List(), c.Processes)))


def wait(future: Future, seconds: float | None = None) -> Any:
    """The future's value; TimeoutError after `seconds`, and then it takes nothing any more."""
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done() or not future.cancel():  # it was settled just now
            return future.result()
        raise
    except BaseException:
        future.cancel()
        raise


async def soon(future: Future) -> Any:
    """The same for asyncio."""
    return await asyncio.wrap_future(future)


def content(data: bytes | str | Path) -> bytes:
    """The bytes themselves, or those at a path. Raises BadRequest."""
    from pie_cli.arguments import read_file

    if isinstance(data, str | Path):
        with translated():
            return read_file(str(data), "send_file", c.MAX_FILE + 1)
    return bytes(data)


def infos(answer: c.Processes) -> list[ProcessInfo]:
    names = ProcessInfo.__dataclass_fields__
    return [ProcessInfo(**{name: getattr(row, name) for name in names}) for row in answer.rows]
