"""How many rows of prompts go into a wave with decodes, from what waves have cost. No clock here.

    seconds of a wave  =  those of its decodes alone  +  rows of prompts * seconds of a row

Both are running averages. A wave with decodes may take `STRETCH` times what its decodes alone take,
so that a long prompt slows them down by no more than that, whatever the machine and the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.state import Segment

STRETCH = 2.0
WEIGHT = 0.25  # of the newest wave
MAX_JUMP = 3.0  # a wave that took longer than so many times the average was disturbed


class Pace:
    def __init__(self, row_budget: int, min_rows: int, decode_rows: int) -> None:
        self.row_budget, self.min_rows, self.decode_rows = row_budget, min_rows, decode_rows
        self.decode_seconds: dict[int, float] = {}  # of a wave of decodes alone, by size class
        self.row_seconds = 0.0

    def observe(self, segments: Sequence[Segment], seconds: float) -> None:
        """What one wave has cost."""
        rows = [segment.stop - segment.start for segment in segments]
        prompts = sum(count for count in rows if count > self.decode_rows)
        size = _size_class(sum(count <= self.decode_rows for count in rows))
        if not prompts:
            self.decode_seconds[size] = _average(self.decode_seconds.get(size, 0.0), seconds)
            return
        # What prompts alone cost says enough, when there were no decodes yet.
        spent = seconds - self.decode_seconds.get(size, 0.0)
        if spent > 0:
            self.row_seconds = _average(self.row_seconds, spent / prompts)

    def prompt_rows(self, num_decodes: int) -> int:
        """Rows of prompts for a wave with so many decodes."""
        decodes = self._decode_seconds(_size_class(num_decodes))
        if not decodes or not self.row_seconds:
            return max(self.row_budget // 4, self.min_rows)
        rows = int((STRETCH - 1) * decodes / self.row_seconds)
        return min(max(rows, self.min_rows), self.row_budget)

    def _decode_seconds(self, size: int) -> float:
        """Of this size, else of the nearest one that has been seen."""
        if size in self.decode_seconds:
            return self.decode_seconds[size]
        nearest = min(self.decode_seconds, key=lambda seen: abs(seen - size), default=None)
        return 0.0 if nearest is None else self.decode_seconds[nearest]


def _size_class(decodes: int) -> int:
    return decodes.bit_length()


def _average(average: float, value: float) -> float:
    if not average:
        return value
    return average + WEIGHT * (min(value, MAX_JUMP * average) - average)
