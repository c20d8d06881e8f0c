"""Where the user's code is: the line that called us, and the user's own frames of a traceback."""

import linecache
import os
import traceback
from collections.abc import Iterable
from types import TracebackType

from inferlet.eta.trace import Line, user_line

__all__ = ["Line", "at", "own_frames", "own_place", "register", "user_line"]


def at(line: Line) -> str:
    """`app.py:14`, as messages write a place."""
    return f"{os.path.basename(line[0])}:{line[1]}"


def register(filename: str, source: str) -> None:
    """Lets tracebacks show the lines of a file that exists in memory alone."""
    # An mtime of None keeps `linecache.checkcache` from looking for the file on disk.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def own_frames(error: BaseException, filenames: Iterable[str]) -> str:
    """The frames of `error` that lie in `filenames`, as a traceback prints them, without header."""
    wanted = set(filenames)
    frames = [f for f in _frames(error.__traceback__) if f.filename in wanted]
    text = "".join(traceback.format_list(frames))
    if isinstance(error, SyntaxError) and error.filename in wanted:
        # The place of a syntax error is in the error, not in a frame.
        text += "".join(traceback.format_exception_only(error)[:-1])
    return text


def own_place(error: BaseException, filenames: Iterable[str]) -> str:
    """`app.py:14`, the innermost line of `filenames` that `error` passed; empty: none."""
    wanted = set(filenames)
    lines = [(f.filename, f.lineno) for f in _frames(error.__traceback__) if f.filename in wanted]
    return at(lines[-1]) if lines else ""


def _frames(trace: TracebackType | None) -> traceback.StackSummary:
    return traceback.extract_tb(trace)
