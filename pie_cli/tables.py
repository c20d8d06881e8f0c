"""Tables and prose for terminals: nothing is broken within a word, and what is left out is told.

A pipe or a file gets all of it, in lines of any length.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from pie_cli.output import columns, table

_GAP = 2


@dataclass(frozen=True)
class Narrow:
    """What gives way where the terminal is too narrow. Columns are named by their heads."""

    shorten: Mapping[str, int] = field(default_factory=dict)  # to no fewer letters, in this order
    drop: tuple[str, ...] = ()  # the first goes first
    prose: int = 0  # letters that the last column keeps, whose lines are broken between words


def room(stream: TextIO) -> int | None:
    """The width of a terminal; None elsewhere: there is room for all."""
    return columns(stream) if stream.isatty() else None


def fitted(rows: list[list[str]], room: int | None, narrow: Narrow) -> tuple[str, list[str]]:
    """The table, the first row being its head, and the heads of the columns that are left out."""
    if room is None:
        return table(rows), []
    missing: list[str] = []
    order = iter([head for head in narrow.drop if head in rows[0]])
    while _excess(rows, room, narrow) > _slack(rows, narrow) and (head := next(order, None)):
        place = rows[0].index(head)
        rows = [row[:place] + row[place + 1 :] for row in rows]
        missing.append(head)
    return table(_with_prose(_shortened(rows, room, narrow), room, narrow)), missing


def wrapped(text: str, room: int | None, indent: int) -> str:
    """Text that begins at the column `indent`, in lines that begin there, too."""
    if room is None or indent + len(text) <= room:
        return text
    lines = textwrap.wrap(
        text, max(room - indent, 20), break_long_words=False, break_on_hyphens=False
    )
    return f"\n{'':{indent}}".join(lines)


def left_out(heads: list[str], where: str) -> str:
    """What is said of columns that are not there. `where`: what shows them."""
    return f"no room for: {', '.join(heads)} ({where})"


def _widths(rows: list[list[str]], narrow: Narrow) -> list[int]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    if narrow.prose:
        widths[-1] = min(widths[-1], narrow.prose)
    return widths


def _excess(rows: list[list[str]], room: int, narrow: Narrow) -> int:
    widths = _widths(rows, narrow)
    return sum(widths) + _GAP * (len(widths) - 1) - room


def _slack(rows: list[list[str]], narrow: Narrow) -> int:
    """How much narrower the columns may become."""
    widths = dict(zip(rows[0], _widths(rows, narrow)))
    return sum(max(0, widths.get(head, 0) - least) for head, least in narrow.shorten.items())


def _shortened(rows: list[list[str]], room: int, narrow: Narrow) -> list[list[str]]:
    rows = [list(row) for row in rows]
    for head, least in narrow.shorten.items():
        excess = _excess(rows, room, narrow)
        if excess <= 0 or head not in rows[0]:
            continue
        place = rows[0].index(head)
        width = max(least, len(head), max(len(row[place]) for row in rows) - excess)
        for row in rows:
            if len(row[place]) > width:
                row[place] = row[place][: width - 1] + "…"
    return rows


def _with_prose(rows: list[list[str]], room: int, narrow: Narrow) -> list[list[str]]:
    """A row whose last cell is too long goes on in rows that are empty besides."""
    if not narrow.prose:
        return rows
    widths = _widths(rows, narrow)
    width = max(narrow.prose, room - sum(widths[:-1]) - _GAP * (len(widths) - 1))
    found = []
    for *cells, prose in rows:
        lines = textwrap.wrap(prose, width, break_long_words=False, break_on_hyphens=False) or [""]
        found.append([*cells, lines[0]])
        found += [[*([""] * len(cells)), line] for line in lines[1:]]
    return found
