"""`pie run`: what its options mean. Starts nothing until all of them are understood."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.stdin_lines import StdinLines

Option = typer.Option


@dataclass
class AppWords:
    """What came after `--`; None when there was no `--`."""

    words: list[str] | None = None


def run(
    context: typer.Context,
    app: Annotated[str, typer.Argument(metavar="APP.py", help="The inferlet.")],
    input: Annotated[
        str | None, Option(metavar="JSON|@FILE|-", help="The input object; `-`: from stdin.")
    ] = None,
    file: Annotated[
        list[str] | None, Option(metavar="NAME=PATH", help="Attach a file (repeatable).")
    ] = None,
    model: Annotated[str | None, Option(metavar="NAME", help="A model of the store.")] = None,
    events: Annotated[
        bool, Option("--events", help="One JSON object a line on stdout for every event.")
    ] = False,
    stream: Annotated[
        bool, Option("--stream", help="Text messages on stdout, the result on stderr.")
    ] = False,
    raw: Annotated[bool, Option("--raw", help="Print a str result without quotes.")] = False,
    one_line: Annotated[
        bool, Option("--json", help="Print the result on one line on a terminal too.")
    ] = False,
    detach: Annotated[
        bool, Option("--detach", help="Print the process id and leave it running.")
    ] = False,
    copies: Annotated[
        int | None, Option("-n", min=1, metavar="N", help="Launch N copies.")
    ] = None,
    name: Annotated[str | None, Option(metavar="NAME", help="The process's id.")] = None,
    no_stdin: Annotated[bool, Option("--no-stdin", help="Leave stdin alone.")] = False,
    timeout: Annotated[
        float | None, Option(metavar="S", help="End the process after S seconds.")
    ] = None,
    keep_alive: Annotated[
        float | None,
        Option(min=0, metavar="S", help="An engine that this starts leaves when idle for S."),
    ] = None,
    about: Annotated[
        bool, Option("--about", help="Print the app's docstring and run nothing.")
    ] = False,
) -> int:
    """Run an inferlet and print what it returns. What follows `--` is its input.

    pie run app.py -- --max-tokens 5 --flag -k v rest
    """
    from pie_cli.arguments import UsageError, parse_words, read_files, read_input

    if about:
        from pie_cli.app_source import docstring, read_app

        print(docstring(read_app(app), app))
        return 0
    if timeout is not None and not 0 < timeout < 1e9:
        raise UsageError(f"`--timeout {timeout:g}` is no number of seconds above 0")
    if events and stream:
        raise UsageError("`--events` and `--stream` both say what stdout is", "choose one")
    value = read_input(input) | parse_words(context.obj.words or [])
    launches = make_runs(
        app, value, files=read_files(file or []), name=name, timeout=timeout, detach=detach,
        copies=copies,
    )  # fmt: skip
    stdin = None if no_stdin or detach else stdin_lines(used=input == "-")
    style = {"raw": raw, "one_line": one_line or copies is not None, "stream": stream}
    return follow(launches, model, keep_alive, stdin, events, style)


def make_runs(
    app: str, value: dict[str, Any], *, files: dict[str, bytes], name: str | None,
    timeout: float | None, detach: bool, copies: int | None,
) -> "list[c.Run]":  # fmt: skip
    """One Run for each copy. Raises UsageError."""
    from ipc import client as c
    from pie_cli.app_source import read_app, read_modules

    source = read_app(app)
    modules = read_modules(app, source)
    runs = []
    for copy in range(copies or 1):
        own = value if copies is None else {**value, "_copy": copy}
        id = f"{name}-{copy}" if name and (copies or 1) > 1 else name
        text = json.dumps(own, ensure_ascii=False)
        runs.append(c.Run(copy, app, source, modules, text, files, id, timeout, detach))
    return runs


def stdin_lines(used: bool) -> "StdinLines":
    """The lines of stdin; none when `--input -` has used it up."""
    from pie_cli.stdin_lines import StdinLines

    return StdinLines(None if used else 0)


def follow(
    runs: "list[c.Run]", model: str | None, keep_alive: float | None, stdin: "StdinLines | None",
    events: bool, style: dict[str, bool],
) -> int:  # fmt: skip
    """Launch and stay to the end; the exit code."""
    from pie_cli import settings
    from pie_cli.arguments import UsageError
    from pie_cli.run_loop import RunLoop
    from pie_cli.screen import DetachedScreen, EventScreen, PlainScreen, Style
    from pie_cli.starting import find_or_start

    sys.stdout.reconfigure(errors="replace")
    if events:
        screen = EventScreen()
    else:
        screen = DetachedScreen() if runs[0].detach else PlainScreen(Style(**style))
    if keep_alive is None:
        keep_alive = settings.keep_alive()
    connection = find_or_start(model, keep_alive, screen.starting)
    try:
        loop = RunLoop(connection, runs, screen, stdin)
        code = loop.run()
        if loop.refusal:
            raise UsageError(loop.refusal.message, loop.refusal.hint)
        return code
    finally:
        connection.close()
