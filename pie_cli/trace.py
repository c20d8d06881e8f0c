"""`pie trace`: a timeline of one process, in the JSON that Perfetto and Chrome's tracing read."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_cli.process_options import Id

if TYPE_CHECKING:
    from ipc import client as c

#: The rows of the picture, from the top.
KINDS = ("process", "pass", "message", "output", "file")


def trace(
    id: Id,
    output: Annotated[
        str | None, typer.Option("-o", metavar="FILE", help="Where to; stdout by default.")
    ] = None,
) -> int:
    """Write a timeline of a process: open it in ui.perfetto.dev or chrome://tracing."""
    from ipc import client as c
    from pie_cli.engines import ask, connections
    from pie_cli.output import note
    from pie_cli.usage import UsageError

    with connections() as engines:
        _, timeline = ask(engines, id, c.ReadTrace(1, id), c.Timeline)
    text = json.dumps(chrome(timeline), ensure_ascii=False) + "\n"
    if timeline.missed:
        note(f"{timeline.missed:,} earlier happenings are kept no more")
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write `{output}`: {error.strerror}") from None
    note(f"{output}: {len(timeline.spans)} spans; open it in ui.perfetto.dev or chrome://tracing")
    return 0


def chrome(timeline: "c.Timeline") -> dict[str, Any]:
    """The trace event format: microseconds, one thread for each kind of span."""
    kinds = [*KINDS, *sorted({span.kind for span in timeline.spans} - set(KINDS))]
    rows = {kind: number for number, kind in enumerate(kinds, 1)}
    names = [_name("process_name", 0, f"{timeline.process} ({timeline.app})")]
    names += [_name("thread_name", row, kind) for kind, row in rows.items()]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"process": timeline.process, "app": timeline.app, "live": timeline.live},
        "traceEvents": names + [_event(span, rows[span.kind]) for span in timeline.spans],
    }


def _name(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}


def _event(span: "c.Span", row: int) -> dict[str, Any]:
    event = {
        "name": span.name, "cat": span.kind, "pid": 1, "tid": row, "ts": span.start * 1e6,
        "args": span.facts,
    }  # fmt: skip
    if span.end > span.start:
        return {**event, "ph": "X", "dur": (span.end - span.start) * 1e6}
    return {**event, "ph": "i", "s": "t"}
