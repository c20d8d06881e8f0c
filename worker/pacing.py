"""How many rows of prompts go into a wave with decodes, from what waves have taken. No clock here.

A wave with prompts may take `STRETCH` times what its decodes alone take, so that a long prompt
slows them down by no more than that, whatever the machine and the model. What it does take corrects
the number of rows: measured costs of one row would be differences of two disturbed times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

from worker.state import Segment

STRETCH = 2.5  # and single waves, which differ by a sixth, stay below three
REMEMBERED = 15  # waves of decodes alone: their median is what such a wave takes
LEAST, MOST = 0.5, 1.25  # by which the rows change at once


class Pace:
    def __init__(self, row_budget: int, min_rows: int, decode_rows: int) -> None:
        self.row_budget, self.min_rows, self.decode_rows = row_budget, min_rows, decode_rows
        # By size class of the number of decodes: seconds of a wave of them alone, rows beside them.
        self._seconds: dict[int, deque[float]] = {}
        self._rows: dict[int, float] = {}

    def observe(self, segments: Sequence[Segment], seconds: float) -> None:
        """What one wave has taken."""
        rows = [segment.stop - segment.start for segment in segments]
        prompts = sum(count for count in rows if count > self.decode_rows)
        size = _size_class(sum(count <= self.decode_rows for count in rows))
        if not prompts:
            self._seconds.setdefault(size, deque(maxlen=REMEMBERED)).append(seconds)
        elif size and self._seconds and seconds > 0:
            self._correct(size, prompts, seconds)

    def _correct(self, size: int, prompts: int, seconds: float) -> None:
        allowed = STRETCH * median(_nearest(self._seconds, size))
        before = self._current(size)
        change = min(max(allowed / seconds, LEAST), MOST)
        if change > 1 and prompts < 0.8 * before:
            return  # fewer rows were there than might have been: says nothing about more
        if change < 1 and prompts > 1.2 * before:
            return  # more sequences wanted to start than decoded: that wave had no pace to keep
        self._rows[size] = min(max(before * change, self.min_rows), self.row_budget)

    def prompt_rows(self, num_decodes: int) -> int:
        """Rows of prompts for a wave with so many decodes."""
        return int(self._current(_size_class(num_decodes)))

    def _current(self, size: int) -> float:
        start = max(self.row_budget / 8, self.min_rows)
        return _nearest(self._rows, size) if self._rows else start


def _size_class(decodes: int) -> int:
    return decodes.bit_length()


def _nearest(known: dict[int, Any], size: int) -> Any:
    """Of this size, else of the nearest one that is known."""
    return known[size] if size in known else known[min(known, key=lambda k: abs(k - size))]
