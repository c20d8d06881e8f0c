"""Host memory of suspended sequences' pages: carries out what `swap.py` has decided.

A copy out of the pool is exact, costs a hundredth of computing the rows anew, and works for every
sequence, also for those whose rows depend on masks or on tokens that the host has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from torch import Tensor

from worker.model.base import Model
from worker.pages import Move


class SwapSpace:
    """Slot -> one page's content, in every layer."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._slots: dict[int, tuple[list[Tensor], int]] = {}  # a batch of pages, which of them

    @property
    def num_pages(self) -> int:
        return len(self._slots)

    def carry_out(self, moves: Iterable[tuple[Move, int, int]]) -> None:
        for kind, group in groupby(moves, lambda move: move[0]):
            pages, slots = zip(*((page, slot) for _, page, slot in group))
            if kind is Move.OUT:
                saved = self.model.save_pages(pages)
                self._slots.update((slot, (saved, place)) for place, slot in enumerate(slots))
            elif kind is Move.IN:
                self._bring_back(pages, slots)
            elif kind is Move.CLEAR:
                self.model.clear_pages(pages)
            elif kind is Move.COPY:
                self.model.copy_pages(list(zip(pages, slots)))
            else:
                for slot in slots:
                    del self._slots[slot]

    def _bring_back(self, pages: tuple[int, ...], slots: tuple[int, ...]) -> None:
        batches: dict[int, tuple[list[Tensor], list[int], list[int]]] = {}
        for page, slot in zip(pages, slots):
            saved, place = self._slots[slot]
            _, targets, places = batches.setdefault(id(saved), (saved, [], []))
            targets.append(page)
            places.append(place)
        for saved, targets, places in batches.values():
            self.model.load_pages(targets, [part[places] for part in saved])
