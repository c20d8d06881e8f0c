"""Ends that are waited for: of processes that were killed, and of engines that were told to leave.

Bounded: what does not end in time is an EngineLost that says why.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from pie_cli import cards, settings, stopped
from pie_cli.connection import LOOK_SECONDS, Connection, EngineLost, LocalConnection
from pie_cli.engines import ANSWER_SECONDS, rows_of
from pie_cli.output import note

POLL_SECONDS = 0.02
STOP_SECONDS = 30.0


def wait_until_gone(engine: Connection, ids: set[str]) -> None:
    """Return when the engine has none of these processes any more. Raises EngineLost."""
    begin = time.monotonic()
    while left := ids & {row.id for row in rows_of(engine)}:
        waited = time.monotonic() - begin
        parts = engine.stopped() if waited > LOOK_SECONDS else {}
        if parts or waited > ANSWER_SECONDS:
            names = " and ".join(f"`{id}`" for id in sorted(left))
            words = f"{names} {'has' if len(left) == 1 else 'have'} not ended yet"
            if not parts:
                raise engine.lost(words, "`pie ps` says when; `pie stop` ends all")
            why, hint = stopped.told(parts)
            raise engine.lost(f"{words}: {why}", hint)
        time.sleep(POLL_SECONDS)


def closed_engines() -> dict[settings.EngineFolder, cards.Card]:
    """Those to which this user may neither speak nor send a signal."""
    found = {}
    for folder in settings.engine_folders():
        card = cards.read(folder)
        if card and not may_signal(card.pid) and not os.access(folder.path / "hub.sock", os.W_OK):
            found[folder] = card
    return found


def may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def wait_or_kill(engine: LocalConnection) -> None:
    """Return when the engine, which was told to leave, is gone. Raises EngineLost."""
    if engine.wait_end(STOP_SECONDS):
        return
    who, pid = f"the engine with `{engine.card.model}`", engine.card.pid
    if not may_signal(pid):
        hint = f"`kill -KILL {pid}`, by its owner or by root, ends it"
        raise engine.lost(f"{who} does not answer, and this user may not kill it", hint)
    note(f"{who} does not answer: killing it")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not engine.wait_end(STOP_SECONDS):
        raise engine.lost(f"{who} was killed, and has not ended", f"`ps {pid}` says what it does")


def refuse_closed(closed: Iterable[cards.Card]) -> None:
    """Raises EngineLost when there is one."""
    for card in closed:
        who = f"the engine with `{card.model}` (process {card.pid})"
        hint = f"`kill {card.pid}`, by its owner or by root, ends it"
        raise EngineLost(f"{who} is another user's: this one may not end it", hint)
