"""`pie attach`: joins a process: what it sends and prints, and lines of stdin for its inbox."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Annotated

import typer

from pie_cli.process_options import Client, Id

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.connection import Connection


def attach(
    id: Id,
    events: Annotated[
        bool, typer.Option("--events", help="One JSON object a line on stdout for every event.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Text messages on stdout, the result on stderr.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print a str result without quotes.")] = False,
    one_line: Annotated[
        bool, typer.Option("--json", help="Print the result on one line on a terminal too.")
    ] = False,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Leave stdin alone.")] = False,
    no_past: Annotated[
        bool, typer.Option("--no-past", help="Only what comes from now on.")
    ] = False,
    client: Client = None,
) -> int:
    """Join a process: its messages, and your stdin.

    What it sent and prints is shown, and lines of stdin go to its inbox as text, whatever they look like: `pie send` sends JSON. Ctrl-C leaves it running. The exit code is that of its end.
    """
    from ipc import client as c
    from pie_cli.engines import ask, connections
    from pie_cli.run import refuse_two_outputs

    refuse_two_outputs(events, stream)
    options = Namespace(
        events=events, stream=stream, raw=raw, one_line=one_line, detach=False, copies=None
    )
    with connections(client=client) as engines:
        request = c.Attach(1, id, past=not no_past)
        engine, attached = ask(engines, id, request, c.Attached)
        return follow(engine, attached, options, no_stdin)


def follow(engine: "Connection", attached: "c.Attached", options: Namespace, no_stdin: bool) -> int:
    """Stay to the end of the process; its exit code."""
    from pie_cli.attach_loop import AttachLoop
    from pie_cli.output import note
    from pie_cli.screen import make_screen
    from pie_cli.stdin_lines import StdinLines

    if not attached.live:
        note(f"`{attached.process}` has ended: this is what is kept of it")
    if attached.missed:
        events = "earlier event is" if attached.missed == 1 else "earlier events are"
        note(f"{attached.missed:,} {events} kept no more")
    stdin = None if no_stdin or sys.stdin is None else StdinLines(0)
    return AttachLoop(engine, attached, make_screen(options), stdin).run()
