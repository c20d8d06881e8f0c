"""The options of `pie run` as one table: for the quick parser here, and for help and completion.

`pie run` is what scripts call in loops, so it does not wait for the command tree's imports.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pie_cli.limits import HELP
from pie_cli.usage import UsageError, meant


@dataclass(frozen=True)
class Option:
    """One option. No `metavar`: it is a flag."""

    name: str  # the field of the parsed options
    flag: str
    help: str
    metavar: str = ""
    type: type = str
    repeatable: bool = False


OPTIONS = (
    Option("input", "--input", "The input object; `-`: from stdin.", "JSON|@FILE|-"),
    Option("files", "--file", "Attach a file (repeatable).", "NAME=PATH", repeatable=True),
    Option("model", "--model", "A model of the store.", "NAME"),
    Option("events", "--events", "One JSON object a line on stdout for every event."),
    Option("stream", "--stream", "Text messages on stdout, the result on stderr."),
    Option("raw", "--raw", "Print a str result without quotes."),
    Option("one_line", "--json", "Print the result on one line on a terminal too."),
    Option("output", "-o", "Where files that the app sends are stored.", "DIR"),
    Option("detach", "--detach", "Print the process id and leave it running."),
    Option("copies", "-n", "Launch N copies; lines on stderr begin with their id.", "N", int),
    Option("name", "--name", "The process's id.", "NAME"),
    Option("client", "--client", "Launch for another client than this user.", "NAME"),
    Option("priority", "--priority", "Higher goes first; the default is 0.", "N", int),
    Option("salt", "--salt", "Share cached pages with runs of an equal salt only.", "TEXT"),
    Option("no_stdin", "--no-stdin", "Leave stdin alone."),
    Option("timeout", "--timeout", "End the process after S seconds.", "S", float),
    Option("limits", "--limit", "Lower limits of this launch, like memory=256M,cpu=60; keys: above.", "KEY=N,…", repeatable=True),
    Option("keep_alive", "--keep-alive", "Of an engine that this starts: leave when idle for S seconds.", "S", float),
    Option("engine", "--engine", "An engine on another machine; also before the verb.", "tcp://HOST:PORT"),
    Option("key", "--key", "The key for it: what `pie key new` has made there.", "FILE"),
    Option("watch", "--watch", "Launch anew when the app or an attached file changes."),
    Option("about", "--about", "Print the app's docstring and run nothing."),
)  # fmt: skip

HINT = "`pie run --help` lists the options; the app's own arguments come after `--`"


QUOTED = re.compile(r"'([^']*)'")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(message, HINT)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options before `--`, and in `words` what comes after; raises UsageError."""
    words: list[str] = []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, words = arguments[:cut], arguments[cut + 1 :]
    parser = _Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("app", metavar="APP.py")
    for option in OPTIONS:
        if not option.metavar:
            parser.add_argument(option.flag, dest=option.name, action="store_true")
            continue
        action = "append" if option.repeatable else "store"
        parser.add_argument(
            option.flag, dest=option.name, metavar=option.metavar, type=option.type, action=action
        )
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        name = f"`{error.argument_name}`: " if error.argument_name else ""
        raise UsageError(name + QUOTED.sub(r"`\1`", error.message), HINT) from None
    if unknown:
        word = unknown[0]
        if not word.startswith("-"):
            raise UsageError(f"unknown argument `{word}`", HINT)
        flags = [option.flag for option in OPTIONS]
        raise UsageError(f"unknown option `{word}`", meant(word.partition("=")[0], flags, HINT))
    options.words = words
    return options


def typer_command(run: Callable[[argparse.Namespace], int]) -> Callable[..., int]:
    """The same options as a function that typer can read."""
    import inspect

    import typer

    def command(**values: Any) -> int:
        return run(argparse.Namespace(**values, words=[]))

    annotations: dict[str, Any] = {
        "app": Annotated[str, typer.Argument(metavar="APP.py", help="The inferlet.")]
    }
    for option in OPTIONS:
        if not option.metavar:
            annotations[option.name] = Annotated[bool, typer.Option(option.flag, help=option.help)]
            continue
        kind = list[option.type] if option.repeatable else option.type
        info = typer.Option(option.flag, metavar=option.metavar, help=option.help)
        annotations[option.name] = Annotated[kind | None, info]
    defaults = {option.name: None if option.metavar else False for option in OPTIONS}
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
            default=defaults.get(name, inspect.Parameter.empty),
        )
        for name, annotation in annotations.items()
    ]  # fmt: skip
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = annotations
    command.__doc__ = f"{inspect.getdoc(run)}\n\n{HELP}"
    return command
