"""Coroutines that nobody awaited, told with the user's line. Python's own word of them names neither
the call nor the remedy. Changes nothing about those that are awaited.
"""

import ast
import asyncio
import gc
import inspect
import linecache
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import CoroutineType

from inferlet.runtime.source import Line

DEPTH = 16  # frames: from the SDK's own coroutine function out to the user's line
MAX_LINES = 3  # that are named
HINT = "write `await` before the call"


@dataclass(frozen=True)
class Forgotten:
    """`lines`: of the call; more than one when it may be any of these; none when it is not the
    user's."""

    name: str  # of the function, empty for one of the SDK's own
    lines: tuple[Line, ...]

    @property
    def what(self) -> str:
        """`run_ahead` was called without `await`, …"""
        called = f"`{self.name}` was called" if self.name else "a call was made"
        return f"{called} without `await`, so it did not run"

    @property
    def warning(self) -> str:
        """All of it, for somebody who reads stderr."""
        places = ", or ".join(f"{file}:{line}" for file, line in self.lines)
        text = f"warning: {places}: {self.what}" if places else f"warning: {self.what}"
        if len(self.lines) == 1:
            text += f"\n  {linecache.getline(*self.lines[0]).strip()}"
        return f"{text}\n\nhint: {HINT}"


def watch(filenames: Collection[str], tell: Callable[[Forgotten], None]) -> None:
    """From now on `tell` gets, once for each, what was not awaited. `filenames`: the user's."""
    told: set[Forgotten] = set()

    def on_end(coroutine: CoroutineType) -> None:
        forgotten = _about(coroutine, filenames)
        if forgotten not in told:
            told.add(forgotten)
            tell(forgotten)

    # The interpreter looks this name up each time that a coroutine goes which never began.
    warnings._warn_unawaited_coroutine = on_end


def trace_calls() -> None:
    """Coroutines know their call from now on: exact, and too dear for a run."""
    sys.set_coroutine_origin_tracking_depth(DEPTH)


def collect() -> None:
    """Lets go of all that nobody can await any more, and of what globals keep for ever."""
    gc.collect()
    if asyncio.all_tasks() - {asyncio.current_task()}:
        return  # a task that has not begun keeps its own
    for each in gc.get_objects():
        is_traced = isinstance(each, CoroutineType) and each.cr_origin
        if is_traced and inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
            warnings._warn_unawaited_coroutine(each)
            each.close()


def _about(coroutine: CoroutineType, filenames: Collection[str]) -> Forgotten:
    name = coroutine.__qualname__.rpartition(".")[2]
    name = "" if name.startswith("_") else name
    for file, line, _ in coroutine.cr_origin or ():
        if file in filenames:
            return Forgotten(name, ((file, line),))
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename not in filenames:
        frame = frame.f_back
    if frame is not None:
        place = frame.f_code.co_filename, frame.f_lineno
        if not name or re.search(rf"\b{re.escape(name)}\s*\(", linecache.getline(*place)):
            return Forgotten(name, (place,))
    # It was kept in a variable for a while.
    lines = [(file, line) for file in sorted(filenames) for line in _bare_calls(file, name)]
    return Forgotten(name, tuple(lines[:MAX_LINES]))


def _bare_calls(file: str, name: str) -> Iterator[int]:
    """Lines of the file that call `name` and neither await it nor hand it to another call."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Await):
            used.add(node.value)
        elif isinstance(node, ast.Call):
            used.update(node.args)
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == name and node not in used:
                yield node.lineno
