"""`pie logs`: what a process has printed, and prints."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pie_cli.process_options import Id

if TYPE_CHECKING:
    from ipc import client as c
    from pie_cli.connection import Connection

SHOWN_STEP = 1 << 20  # in units of `weight`


def logs(
    id: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay, and print what comes, to its end; stderr says of what it did not return.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array; with `-f` one object a line.")
    ] = False,
) -> int:
    """Print what a process has printed, each stream on its own.

    The last MiB of it is kept as long as the engine runs, of the last 200 processes that have ended too.
    """
    from ipc import client as c
    from pie_cli.engines import ask, connections
    from pie_cli.output import note

    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    with connections() as engines:
        engine, log = ask(engines, id, c.ReadLog(1, id, follow), c.Log)
        if log.missed:
            note(f"{log.missed:,} earlier bytes are kept no more")
        if as_json and not follow:
            print(json.dumps([as_object(printed) for printed in log.printed], ensure_ascii=False))
            return 0
        for printed in log.printed:
            write(printed, as_json)
        if follow:
            follow_log(engine, as_json)
    return 0


def follow_log(engine: "Connection", as_json: bool) -> None:
    """Print what comes until the process ends. Raises EngineLost."""
    from ipc import client as c
    from pie_cli.output import note

    shown = 0
    while True:
        ended = engine.engine_ended()  # before reading: its last words come first
        match engine.receive():
            case c.Printed() as printed:
                write(printed, as_json)
                shown += c.weight(printed.text)
                if shown > SHOWN_STEP:
                    engine.send(c.Shown(printed.process, shown))
                    shown = 0
            case c.Returned():
                return
            case c.Error() as end:
                from pie_cli.screen import describe

                note(f"`{end.process}` has ended: {describe(end)}")
                return
            case c.EngineFailed(message, hint):
                raise engine.lost(message, hint)
            case None if ended:
                raise engine.lost()
            case None:
                engine.wait(None)


def write(printed: "c.Printed", as_json: bool) -> None:
    stream = sys.stdout
    if as_json:
        text = json.dumps(as_object(printed), ensure_ascii=False) + "\n"
    else:
        text = printed.text
        stream = sys.stderr if printed.stream == "stderr" else sys.stdout
    stream.write(text)
    stream.flush()


def as_object(printed: "c.Printed") -> dict[str, object]:
    return {"time": printed.time, "stream": printed.stream, "text": printed.text}
