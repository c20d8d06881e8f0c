"""`pie send`: puts a message or a file into a process's inbox."""

import hashlib
from typing import TYPE_CHECKING, Annotated

import typer

from pie_cli.process_options import Client, Id

if TYPE_CHECKING:
    from pie_cli.connection import Connection

FILE_SECONDS = 60.0  # in which the engine takes a file
_APP_AT_FAULT, _USAGE, _ENGINE = 1, 2, 3


def send(
    id: Id,
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="JSON when it begins with `{` or `[`, else text."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="A file for `receive_file`.")
    ] = None,
    close: Annotated[
        bool, typer.Option("--close", help="Nothing more comes: `receive` and `receive_file` end with EOFError.")
    ] = False,
    client: Client = None,
) -> int:
    """Send a message, a file, or both to a process.

    JSON is sent as such: `receive` gives the app a dict or a list. Lines that are typed into `pie run` or `pie attach` are always text.
    """
    from ipc import client as c
    from pie_cli.engines import connections, owners_of, unknown
    from pie_cli.usage import UsageError

    if message is None and file is None and not close:
        raise UsageError("nothing to send", "`pie send ID MESSAGE`, or `--file PATH`")
    is_json, data = is_json_text(message), read(file)
    with connections(client=client) as engines:
        owners = list(owners_of({id}, engines))
        if not owners:
            raise unknown(id, engines)
        code = 0
        if message is not None:
            owners[0].send(c.Message(id, is_json, message, 1))
            code = outcome(owners[0], id)
        if data is not None and code == 0:
            send_file(owners[0], id, data)
            code = outcome(owners[0], id)
        if close and code == 0:
            owners[0].send(c.CloseInput(id))
        return code


def is_json_text(message: str | None) -> bool:
    """Whether it is JSON: it begins like that. Raises UsageError when it is none then."""
    from pie_cli.arguments import parse_json

    if message is None or not message.startswith(("{", "[")):
        return False
    parse_json(message, "the message")
    return True


def read(path: str | None) -> bytes | None:
    """The file's bytes. Raises UsageError."""
    from ipc.client import MAX_FILE
    from pie_cli.arguments import read_file
    from pie_cli.usage import UsageError

    if path is None:
        return None
    data = read_file(path, "--file", MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise UsageError(f"`{path}` is too large", f"a file may have {MAX_FILE >> 20} MiB")
    return data


def send_file(engine: "Connection", id: str, data: bytes, request: int = 1) -> None:
    """All parts of a file; the engine answers once."""
    from ipc import client as c

    for start in range(0, max(len(data), 1), c.FILE_PART):
        part = data[start : start + c.FILE_PART]
        is_last = start + c.FILE_PART >= len(data)
        digest = hashlib.sha256(data).digest() if is_last else b""
        engine.send(c.FilePart(request, id, len(data), part, digest))


def outcome(engine: "Connection", id: str) -> int:
    """Wait for what became of it, say so when it was not taken; the exit code."""
    from ipc import client as c
    from pie_cli.output import error

    answer = engine.expect(c.Answered, FILE_SECONDS)
    if answer.outcome == c.ACCEPTED:
        return 0
    words, hint, code = refusal(answer.outcome, answer.reason, id)
    error(words, hint)
    return code


def refusal(outcome: str, reason: str, id: str) -> tuple[str, str, int]:
    """(what is wrong, what to do, exit code) of an outcome that is not ACCEPTED."""
    from ipc import client as c
    from pie_cli.engines import ended

    match outcome:
        case c.UNKNOWN:  # since it was found
            error = ended(id)
            return str(error), error.hint, _USAGE
        case c.OTHER_CLIENT:
            return f"`{id}` belongs to another client", "`--client NAME` speaks for it", _USAGE
        case c.FULL:
            return f"the inbox of `{id}` is full", "send again once it has received", _APP_AT_FAULT
        case c.CLOSED:
            hint = "`pie send --close`, or the end of its stdin, said that nothing more comes"
            return f"the input of `{id}` is closed", hint, _USAGE
    what = reason or outcome
    return f"the file could not be given to `{id}`: {what}", "`pie logs` may say more", _ENGINE
