"""`pie ps`, `pie kill`, `pie stop`: what the running engines do, and their ends."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from pie_cli.engines import ANSWER_SECONDS, connections, live_rows, owners_of, unknown
from pie_cli.output import error, is_animated, note
from pie_cli.process_options import Ids
from pie_cli.tables import Narrow, fitted, left_out, room

if TYPE_CHECKING:
    from ipc import client as c

CLEAR = "\x1b[H\x1b[2J"  # of a terminal
WATCH_SECONDS = 1.0
KEYS = (
    "id", "app", "client", "state", "age", "tokens_in", "tokens_out", "pages", "memory", "sandbox",
)  # fmt: skip
WIDE = (*KEYS, "model", "cpu", "priority", "inbox", "views", "position")
#: An id is never cut: it is there to be copied.
NARROW = Narrow(
    {"app": 12, "model": 12, "client": 8},
    ("position", "views", "inbox", "priority", "cpu", "sandbox", "client", "pages", "model",
     "memory", "tokens in", "tokens out", "app", "age"),
)  # fmt: skip


def ps(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="All that is known; with `--json` the model and more keys, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show them anew every second; in a pipe, without `--json`, when they change.")] = False,
) -> int:
    """List the live processes of all engines."""
    keys = WIDE if wide else KEYS if as_json else (*KEYS, "model")
    shown = Shown()
    while True:
        rows = live_rows()
        if as_json:
            print(json.dumps([{key: getattr(row, key) for key in keys} for row in rows]))
        elif not watch:
            show(rows, keys)
        elif is_animated(sys.stdout):
            sys.stdout.write(CLEAR)
            show(rows, keys, os.get_terminal_size(sys.stdout.fileno()))
        elif shown.is_new(rows):
            show(rows, keys)
        if not watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


class Shown:
    """What a file or a pipe was told last: it gets the same facts but once."""

    def __init__(self) -> None:
        self._facts: list[tuple[object, ...]] | None = None

    def is_new(self, rows: "list[c.ProcessRow]") -> bool:
        """Whether more than time has passed; an empty line then parts it from the last."""
        keys = [key for key in WIDE if key not in ("age", "cpu")]
        facts = [tuple(getattr(row, key) for key in keys) for row in rows]
        before, self._facts = self._facts, facts
        if before and facts != before:
            print()
        return facts != before


def show(
    rows: "list[c.ProcessRow]", keys: tuple[str, ...], size: os.terminal_size | None = None
) -> None:
    """A table that fits the terminal's width, and its height where `size` is given."""
    if rows:
        head = [key.replace("_", " ") for key in keys]
        cells = [[_readable(key, getattr(row, key)) for key in keys] for row in rows]
        text, missing = fitted([head, *cells], room(sys.stdout), NARROW)
        said = left_out(missing, "`pie ps | cat` shows all") if missing else ""
        if size:
            print(cropped("\n".join(filter(None, [text, said])), size))
            return
        print(text, flush=True)
        if said:
            note(said)
    else:
        from pie_cli import cards, remote, settings

        running = remote.chosen() or any(cards.read(folder) for folder in settings.engine_folders())
        note("no live processes" if running else "no engine is running")


def cropped(text: str, size: os.terminal_size) -> str:
    """No line that would wrap, and no more than fit with the cursor below them."""
    lines = [line[: size.columns] for line in text.splitlines()]
    if len(lines) < size.lines:
        return "\n".join(lines)
    kept = lines[: max(1, size.lines - 2)]
    return "\n".join([*kept, f"… {len(lines) - len(kept)} more"[: size.columns]])


def kill(ids: Ids) -> int:
    """End processes.

    Of whatever client: `--client` of the other verbs says whose messages go where, and all of
    them are this user's.
    """
    from ipc import client as c
    from pie_cli.ends import wait_until_gone

    with connections() as engines:
        owners = owners_of(set(ids), engines)
        for engine, own in owners.items():
            engine.send(c.Kill(tuple(own)))
            engine.expect(c.Killed, ANSWER_SECONDS)
        missing = set(ids).difference(*owners.values())
        for id in dict.fromkeys(ids):
            if id in missing:
                fault = unknown(id, engines)
                error(str(fault), fault.hint)
        for engine, own in owners.items():
            wait_until_gone(engine, own)
    return 2 if missing else 0


def stop() -> int:
    """End the engines, and all that they run."""
    from ipc import client as c
    from pie_cli import remote
    from pie_cli.ends import closed_engines, refuse_closed, wait_or_kill

    remote.refuse("`pie stop` ends engines of this machine")
    closed = closed_engines()
    with connections(even_silent=True, besides=closed) as engines:
        if not engines and not closed:
            note("no engine is running")
        for engine in engines:
            engine.send(c.StopEngine())
            # One that is stopped cannot leave; once it can, it does so before all else.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(engine.card.pid, signal.SIGCONT)
        for engine in engines:
            wait_or_kill(engine)
    refuse_closed(closed.values())
    return 0


def _readable(key: str, value: object) -> str:
    if value is None:
        return "-"
    if key == "age":
        return f"{value:.0f} s"
    if key == "cpu":
        return f"{value:.1f} s"
    if key == "memory":
        return f"{value / (1 << 20):.0f} MiB"
    return f"{value:,}" if isinstance(value, int) else str(value)
