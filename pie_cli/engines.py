"""The running engines of this PIE_HOME, and which of them has a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pie_cli.usage import UsageError

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.connection import Connection

ANSWER_SECONDS = 10.0


@contextmanager
def connections(
    even_silent: bool = False, model: str | None = None, client: str | None = None
) -> "Iterator[list[Connection]]":
    """One to each running engine, or to the model's alone. `even_silent`: also to those that do
    not greet."""
    from pie_cli import config, settings
    from pie_cli.connection import connect

    found = []
    try:
        for folder in settings.engine_folders():
            engine = connect(folder, even_silent, config.value("run.client", client))
            if engine:
                found.append(engine)
        if model and model not in {engine.card.model for engine in found}:
            raise UsageError(f"no engine with `{model}` is running", "`pie doctor` lists engines")
        yield [engine for engine in found if model in (None, engine.card.model)]
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
    """Which live processes of those named each engine has. Raises UsageError: two have one."""
    owners: dict[Connection, set[str]] = {}
    for engine in engines:
        if own := ids & {row.id for row in rows_of(engine)}:
            owners[engine] = own
    for id in ids:
        refuse_two([engine for engine, own in owners.items() if id in own], id)
    return owners


def ask(engines: "list[Connection]", id: str, request: Any, kind: type) -> "tuple[Connection, Any]":
    """The engine that has the process, dead or alive, and its answer. Raises UsageError.

    A live process goes before one of the same id that has ended.
    """
    from ipc import client as c

    candidates = list(owners_of({id}, engines)) or engines
    found = []
    for engine in candidates:
        engine.send(request)
        answer = engine.expect((kind, c.Unknown), ANSWER_SECONDS)
        if isinstance(answer, kind):
            found.append((engine, answer))
    refuse_two([engine for engine, _ in found], id)
    if not found:
        raise unknown(id)
    return found[0]


def refuse_two(engines: "list[Connection]", id: str) -> None:
    """Raises UsageError when more than one engine has a process of that name."""
    if len(engines) > 1:
        models = ", ".join(f"`{engine.card.model}`" for engine in engines)
        raise UsageError(
            f"`{id}` is a process of several engines: {models}", "`--model` says which"
        )


def unknown(id: str) -> UsageError:
    return UsageError(f"no process `{id}`", "`pie ps` lists those that live")
