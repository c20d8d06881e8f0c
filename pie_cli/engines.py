"""The running engines of this PIE_HOME, and which of them has a process."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pie_cli.usage import UsageError, meant

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.connection import Connection
    from pie_cli.settings import EngineFolder

ANSWER_SECONDS = 10.0


@contextmanager
def connections(
    even_silent: bool = False, client: str | None = None, besides: "Iterable[EngineFolder]" = ()
) -> "Iterator[list[Connection]]":
    """One to each running engine, or to the chosen one on another machine.

    `even_silent`: also to those that do not greet. `besides`: folders to leave alone.
    """
    from pie_cli import config, remote, settings
    from pie_cli.connection import connect

    found = []
    try:
        if there := remote.chosen():
            found.append(remote.connect(there, client))
        for folder in [] if there else settings.engine_folders():
            if folder in besides:
                continue
            engine = connect(folder, even_silent, config.value("run.client", client))
            if engine:
                found.append(engine)
        yield found
    finally:
        for engine in found:
            engine.close()


def rows_of(engine: "Connection") -> "tuple[c.ProcessRow, ...]":
    """The live processes of one engine."""
    from ipc import client as c

    engine.send(c.List())
    return engine.expect(c.Processes, ANSWER_SECONDS).rows


def live_rows() -> "list[c.ProcessRow]":
    """The live processes of all engines."""
    with connections() as engines:
        return [row for engine in engines for row in rows_of(engine)]


def owners_of(ids: set[str], engines: "list[Connection]") -> "dict[Connection, set[str]]":
    """Which live processes of those named each engine has: ids are unique in a home."""
    owners: dict[Connection, set[str]] = {}
    for engine in engines:
        if own := ids & {row.id for row in rows_of(engine)}:
            owners[engine] = own
    return owners


def ask(engines: "list[Connection]", id: str, request: Any, kind: type) -> "tuple[Connection, Any]":
    """The engine that has the process, dead or alive, and its answer. Raises UsageError.

    A live process goes before one of the same id that has ended.
    """
    from ipc import client as c

    for engine in list(owners_of({id}, engines)) or engines:
        engine.send(request)
        answer = engine.expect((kind, c.Unknown), ANSWER_SECONDS)
        if isinstance(answer, kind):
            return engine, answer
    raise unknown(id, engines)


def unknown(id: str, engines: "list[Connection]") -> UsageError:
    """The error of an id that no live process has."""
    if not engines:
        hint = "`pie run` starts one; what a process has printed is kept as long as its engine runs"
        return UsageError(f"no engine is running, so there is no process `{id}`", hint)
    if any(remembers(engine, id) for engine in engines):
        return ended(id)
    live = [row.id for engine in engines for row in rows_of(engine)]
    hint = "`pie ps` lists those that live"
    numbered = [each for each in live if each.startswith(f"{id}-")]  # an app's name is no id
    if len(numbered) == 1:
        return UsageError(f"no process `{id}`", f"did you mean `{numbered[0]}`? {hint}")
    return UsageError(f"no process `{id}`", meant(id, live, hint))


def ended(id: str) -> UsageError:
    """The error of a process that lives no more, where a live one is needed."""
    return UsageError(f"`{id}` has ended", f"`pie logs {id}` prints what it has printed")


def remembers(engine: "Connection", id: str) -> bool:
    """Whether it knows a process of that id, alive or ended."""
    from ipc import client as c

    engine.send(c.ReadLog(1, id))
    return isinstance(engine.expect((c.Log, c.Unknown), ANSWER_SECONDS), c.Log)
