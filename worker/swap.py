"""Pages of suspended sequences: where they lie in host memory, and what must be moved. No tensors.

    suspend   all pages of a sequence are saved and given back to the pool
    restore   pages that are still there are shared again, others are copied back into free ones

Full frozen pages are saved once for all sequences that share them, and are shared again when they
come back. What a sequence has from its trunk, the trunk saves (`trunk.py`). Moves are carried out
in order, before anything else of the next wave touches a page.
Copies of shared pages are among them: the source may be given up, and brought back into, by a later
move of the same wave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.pages import NULL_PAGE, Account, Move, PagePool


@dataclass(slots=True, eq=False)
class Saved:
    """One page's content in host memory, for `users` suspended sequences."""

    slot: int
    page: int  # where it was last, and still is while the generation is the same
    generation: int
    is_full: bool  # full and frozen: may be shared
    users: int = 1


class Swap:
    """At most `capacity` pages in host memory."""

    def __init__(self, pool: PagePool, capacity: int) -> None:
        self.pool = pool
        self.capacity = capacity
        self.num_used = 0
        self._by_page: dict[tuple[int, int], Saved] = {}  # full ones, by page and generation
        self._free: list[int] = []
        self._next = 0

    @property
    def num_free(self) -> int:
        return self.capacity - self.num_used

    def save(self, pages: Sequence[int], num_full: int) -> list[Saved | None]:
        """The content of these pages, of which the first `num_full` are full and frozen; None for
        places that have no page."""
        return [
            self._save(page, place < num_full) if page != NULL_PAGE else None
            for place, page in enumerate(pages)
        ]

    def _save(self, page: int, is_full: bool) -> Saved:
        home = page, self.pool.generation[page]
        saved = self._by_page.get(home) if is_full else None
        if saved is not None:
            saved.users += 1
            return saved
        saved = Saved(self._take_slot(), *home, is_full)
        if is_full:
            self._by_page[home] = saved
        self.pool.moves.append((Move.OUT, page, saved.slot))
        return saved

    def _take_slot(self) -> int:
        self.num_used += 1
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def is_there(self, saved: Saved) -> bool:
        """Whether a page of the pool still has the content: held by others, or cached."""
        return saved.is_full and self.pool.generation[saved.page] == saved.generation

    def pages_needed(self, saved: Sequence[Saved]) -> int:
        """Pages that must be had to restore these, pages that are merely cached included."""
        refs = self.pool.refs
        return sum(not (self.is_there(one) and refs[one.page]) for one in saved)

    def bring_back(self, saved: Sequence[Saved | None], account: Account) -> list[int]:
        """Their pages, one reference each. The caller has made sure that they can be had."""
        # Those that are there first: taking a page might evict them.
        present = [one for one in saved if one is not None]
        there = [one for one in present if self.is_there(one)]
        self.pool.share([one.page for one in there], account)
        for one in present:
            if not self.is_there(one):
                self._load(one, account)
        return [NULL_PAGE if one is None else one.page for one in saved]

    def _load(self, one: Saved, account: Account) -> None:
        (page,) = self.pool.take(1, account, is_filled=True)
        self.pool.moves.append((Move.IN, page, one.slot))
        self._by_page.pop((one.page, one.generation), None)
        one.page, one.generation = page, self.pool.generation[page]
        if one.is_full:
            self._by_page[one.page, one.generation] = one

    def share(self, saved: Sequence[Saved | None]) -> None:
        """One more suspended sequence with the same content."""
        for one in saved:
            if one is not None:
                one.users += 1

    def release(self, saved: Sequence[Saved | None]) -> None:
        """One suspended sequence less."""
        for one in saved:
            if one is None:
                continue
            one.users -= 1
            if one.users == 0:
                self._by_page.pop((one.page, one.generation), None)
                self._free.append(one.slot)
                self.num_used -= 1
                self.pool.moves.append((Move.DROP, one.page, one.slot))

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """(source, destination): what pages hold now, after the moves before this."""
        self.pool.moves += [(Move.COPY, source, target) for source, target in copies]

    def take_moves(self) -> list[tuple[Move, int, int]]:
        moves, self.pool.moves = self.pool.moves, []
        return moves

    def check_integrity(self, holders: Sequence[Sequence[Saved]]) -> None:
        """AssertionError unless every slot is free or used, and counted once for each user."""
        users: dict[Saved, int] = {}
        for saved in holders:
            for one in saved:
                users[one] = users.get(one, 0) + 1
        assert all(one.users == count for one, count in users.items()), "users of slots differ"
        assert len(users) == self.num_used, f"{len(users)} saved pages, {self.num_used} slots used"
        assert len(self._free) + self.num_used == self._next, "a slot of the swap is lost"
