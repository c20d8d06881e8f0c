"""`pie run`: what its options mean. Starts nothing until all of them are understood."""

import json
import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from pie_cli.usage import UsageError

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.connection import Connection
    from pie_cli.screen import Screen
    from pie_cli.stdin_lines import StdinLines

MAX_PRIORITY = 1_000_000


def run(options: Namespace) -> int:
    """Run an inferlet and print what it returns. What follows `--` is its input.

    pie run app.py -- --max-tokens 5 --flag -k v rest

    gives it {"max_tokens": 5, "flag": true, "k": "v", "_": ["rest"]}. Lines of stdin come to its
    `receive` as text, whatever they look like; `pie send ID '{"a": 1}'` sends JSON.
    """
    from pie_cli.arguments import parse_words, read_files, read_input

    if options.about:
        from pie_cli.app_source import docstring, read_app

        print(docstring(read_app(options.app), options.app))
        return 0
    check(options)
    value = read_input(options.input)
    words = parse_words(options.words)

    def launches() -> "list[c.Run]":
        own = value if options.input == "-" else read_input(options.input)  # it may have changed
        return make_runs(options, own | words, read_files(options.files or []))

    stdin = None
    if not (options.no_stdin or options.detach):
        stdin = stdin_lines(used=options.input == "-")
    if options.watch:
        from pie_cli.watch import Watch

        return Watch(options, launches, stdin).run()
    return follow(options, launches(), stdin)


def check(options: Namespace) -> None:
    """Refuse values that no run can have."""
    for flag, value in (("--timeout", options.timeout), ("--keep-alive", options.keep_alive)):
        if value is not None and not 0 <= value < 1e9:
            raise UsageError(f"`{flag} {value:g}` is no number of seconds")
    if abs(options.priority or 0) > MAX_PRIORITY:
        raise UsageError(f"`--priority {options.priority}` is not in -{MAX_PRIORITY} to {MAX_PRIORITY}")
    if options.copies is not None and options.copies < 1:
        raise UsageError(f"`-n {options.copies}` launches nothing", "N is 1 or more")
    refuse_two_outputs(options.events, options.stream)
    if options.watch and options.detach:
        raise UsageError("`--watch` stays, and `--detach` does not", "choose one")


def refuse_two_outputs(events: bool, stream: bool) -> None:
    if events and stream:
        raise UsageError("`--events` and `--stream` both say what stdout is", "choose one")


def make_runs(options: Namespace, value: dict[str, Any], files: dict[str, bytes]) -> "list[c.Run]":
    """One Run for each copy. Raises UsageError."""
    from ipc import client as c
    from pie_cli import config
    from pie_cli.app_source import read_app, read_modules
    from pie_cli.limits import parse_limits

    app, source = options.app, read_app(options.app)
    modules = read_modules(app, source)
    limits, client = parse_limits(options.limits or []), config.value("run.client", options.client)
    folder = files_folder(options.output)
    runs = []
    for copy in range(options.copies or 1):
        own = value if options.copies is None else {**value, "_copy": copy}
        several = options.name and (options.copies or 1) > 1
        name = f"{options.name}-{copy}" if several else options.name
        text = json.dumps(own)  # ASCII: half a surrogate pair has no UTF-8
        runs.append(
            c.Run(
                copy, app, source, modules, text, files, name, options.timeout, options.detach,
                options.salt or "", options.priority or 0, limits, client, folder,
            )  # fmt: skip
        )
    return runs


def files_folder(flag: str | None) -> str:
    """Where files that the app sends are to lie; made when it was asked for. Raises UsageError."""
    from pie_cli import config

    folder = config.value("run.files", flag)
    if folder is None:
        return ""  # the engine's own
    folder = os.path.abspath(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot store files in `{folder}`: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot store files in `{folder}`: it cannot be written")
    return folder


def stdin_lines(used: bool) -> "StdinLines":
    """The lines of stdin; none when `--input -` has used it up."""
    from pie_cli.stdin_lines import StdinLines

    return StdinLines(None if used else 0)


def follow(options: Namespace, runs: "list[c.Run]", stdin: "StdinLines | None") -> int:
    """Launch and stay to the end; the exit code."""
    from pie_cli.run_loop import RunLoop
    from pie_cli.screen import make_screen

    screen = make_screen(options)
    connection = connect(options, screen)
    try:
        loop = RunLoop(connection, runs, screen, stdin)
        code = loop.run()
    finally:
        connection.close()
    if loop.refusal:
        raise UsageError(loop.refusal.message, loop.refusal.hint)
    return code


def connect(options: Namespace, screen: "Screen") -> "Connection":
    """A connection to the engine that the options ask for, which is started if need be."""
    from pie_cli import config, remote
    from pie_cli.output import Interrupted, note
    from pie_cli.starting import find_anywhere

    keep_alive = config.value("engine.keep_alive", options.keep_alive)
    try:
        return find_anywhere(
            config.setting("run.model", options.model), keep_alive, screen.starting,
            options.client, remote.chosen(options.engine, options.key), note,
        )  # fmt: skip
    except KeyboardInterrupt:
        screen.interrupted()
        screen.close()
        note("interrupted: nothing was launched")
        raise Interrupted from None
