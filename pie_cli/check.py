"""`pie check`: whether an app records what it should, without an engine and without a model."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from pie_cli.output import error, note

if TYPE_CHECKING:
    from pie_cli.app_trace import Report

FAULTY, NOT_RUN = 1, 3
WORDS = "pie.words"
#: Errors that a wrong value makes, be it the app's or an assumed one.
OF_VALUES = {
    "AssertionError", "AttributeError", "IndexError", "JSONDecodeError", "KeyError", "LookupError",
    "TypeError", "ValueError",
}  # fmt: skip

App = Annotated[str, typer.Argument(metavar="APP.py", help="The inferlet.")]
Input = Annotated[
    str | None, typer.Option("--input", metavar="JSON|@FILE|-", help="The input object.")
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="NAME=PATH", help="Attach a file (repeatable)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class WithWords(TyperCommand):
    """A verb about an app: what follows `--` is the app's, in `meta` of the context."""

    def parse_args(self, context: typer.Context, arguments: list[str]) -> list[str]:
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        context.meta[WORDS] = arguments[cut + 1 :]
        return super().parse_args(context, arguments[:cut])

    def collect_usage_pieces(self, context: typer.Context) -> list[str]:
        return [*super().collect_usage_pieces(context), "[-- --KEY VALUE ...]"]


def check(
    context: typer.Context,
    app: App,
    input: Input = None,
    file: Files = None,
    as_json: Json = False,
) -> int:
    """Find an app's faults: it runs against a fake engine, in the sandbox.

    What follows `--` is its input, as for `pie run`. Inputs that are not given are the text
    "Hello", or a number where the app computes with them. The exit code is 1 when there is a fault.
    """
    report = traced(context, app, input, file)
    if report is None:
        return NOT_RUN
    if as_json:
        document = {
            "app": app, "faults": report.faults, "passes": len(report.passes),
            "channels": len(report.channels), "assumed": report.assumed, "ended": report.is_over,
        }  # fmt: skip
        print(json.dumps(document))
        return FAULTY if report.faults else 0
    tell_end(report)
    if report.faults:
        return FAULTY
    passes, channels = len(report.passes), len(report.channels)
    print(f"{app}: no fault; {counted(passes, 'pass', 'es')}, {counted(channels, 'channel', 's')}")
    return 0


def traced(
    context: typer.Context, app: str, input: str | None, files: list[str] | None
) -> "Report | None":
    """What the app records; None when it could not be run, which was said."""
    from pie_cli.app_trace import SandboxFailed, trace_app
    from pie_cli.arguments import parse_words, read_files, read_input

    try:
        value = read_input(input) | parse_words(context.meta[WORDS])
        return trace_app(app, value, read_files(files or []), context.info_name)
    except SandboxFailed as failure:
        error(str(failure), failure.hint)
        return None


def tell_end(report: "Report") -> None:
    """On stderr: what was assumed, what the app printed, and what ended it."""
    if report.output:
        note("".join(report.output).rstrip("\n"))
    for line in assumptions(report):
        note(line)
    if report.error is None and not report.is_over:
        note("note: `main` had not ended when time was up; what is said here came before")
    if report.error and report.traceback:
        note("Traceback (most recent call last):\n" + report.traceback.rstrip("\n"))
    for fault in report.faults:
        place = f"{fault['file']}:{fault['line']}" if fault["file"] else ""
        before = f"{place}: " if place else ""
        error(f"{before}{fault['type']}: {without_place(fault['message'], place)}")


def assumptions(report: "Report") -> Iterator[str]:
    """What was not given, and what it was instead."""
    words = [name for name in report.assumed if name not in report.numbers]
    if words:
        yield f'note: not given, so "Hello": {", ".join(words)}'
    numbers = [f"{name} = {number}" for name, number in report.numbers.items()]
    if numbers:
        yield f"note: not given, and used as a number, so: {', '.join(numbers)}"
    inputs = [name for name in report.assumed if not name.startswith("file ")]
    fault = report.error
    if inputs and fault and fault["type"] in OF_VALUES and "hint: " not in fault["message"]:
        given = " ".join(f"--{name.replace('_', '-')} …" for name in inputs)
        yield f"note: the fault may be one of what was assumed: give it, `-- {given}`"


def without_place(message: str, place: str) -> str:
    """The message without the place that stands before it."""
    if not place:
        return message
    lines = [line.replace(f"  at {place}, ", "  ") for line in message.split("\n")]
    return "\n".join(line for line in lines if line != f"  at {place}")


def counted(number: int, noun: str, plural: str) -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"
