"""What every verb says to people: errors, hints and notes, on stderr."""

import os
import sys
from contextlib import suppress
from typing import TextIO

_RED, _CYAN = "1;31", "36"


def error(message: str, hint: str | None = None) -> None:
    """`error: …`, and what to do about it. Where stderr is full, the exit code alone says so."""
    with suppress(OSError):
        print(f"{paint('error:', _RED)} {message}", file=sys.stderr)
        if hint:
            print(f"\n{paint('hint:', _CYAN)} {hint}", file=sys.stderr)
        sys.stderr.flush()


def note(message: str) -> None:
    """One line that is no error."""
    print(message, file=sys.stderr, flush=True)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, where the line that it left open on a terminal was ended already."""


def end_interrupted_line() -> None:
    """After Ctrl-C: a terminal has shown `^C`, and leaves the cursor behind it."""
    if sys.stderr.isatty():
        note("")


def is_animated(stream: TextIO) -> bool:
    """Whether lines of the stream may be redrawn."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    """`text` for stderr, coloured where somebody sees it and has not asked for none."""
    return paint_for(sys.stderr, text, code)


def paint_for(stream: TextIO, text: str, code: str) -> str:
    """The same for another stream."""
    if os.environ.get("NO_COLOR") or not is_animated(stream):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def table(rows: list[list[str]]) -> str:
    """Columns of text; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def go_to_one_place(one: TextIO, other: TextIO) -> bool:
    """Whether what is written to both is read in one stream: a terminal, `2>&1`."""
    if one.isatty() and other.isatty():
        return True
    with suppress(OSError, ValueError):
        return os.path.sameopenfile(one.fileno(), other.fileno())
    return False


def columns(stream: TextIO) -> int:
    """The width of the terminal that `stream` is; 80 where it has none."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def bar(fraction: float, text: str, room: int) -> str:
    """What is done, in no more than `room` columns: a drawing where it fits, else the figure."""
    width = min(24, room - len(text) - len(" [] 100%"))
    full = round(fraction * width)
    drawn = f" [{'━' * full}{' ' * (width - full)}]" if width >= 4 else ""
    return f"{text[: max(room - 5, 0)]}{drawn} {fraction:4.0%}"[:room]


class ProgressBar:
    """One line that is redrawn on a terminal; elsewhere a line for each new text."""

    def __init__(self) -> None:
        self._animated = is_animated(sys.stderr)
        self._text = ""
        self._drawn = False

    def show(self, fraction: float, text: str) -> None:
        if self._animated:
            room = columns(sys.stderr) - 1  # a line that wraps cannot be redrawn
            sys.stderr.write(f"\r\x1b[K{bar(fraction, text, room)}")
            sys.stderr.flush()
            self._drawn = True
        elif text != self._text:
            note(text)
        self._text = text

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
