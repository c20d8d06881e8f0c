"""Pages: which are free, how many hold each, and which hold a known prefix. Knows neither tensors
nor sequences.

    held     references > 0: by working sets; the process of the first of them is charged
    cached   no references, but a key: found again under that key, taken when no page is free
    free     neither

A page with one reference may be written by its holder; a page with more is never written. A page
that has a key is full and frozen: whoever writes it all the same must `forget` its key before.

What must be done to the pages themselves is listed in `moves`, in order: before the next wave.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

NULL_PAGE = 0  # never handed out: kernels write their padding there


class Move(Enum):
    """(kind, page, slot of the host's memory or page)"""

    OUT = "out"  # page -> slot
    IN = "in"  # slot -> page
    DROP = "drop"  # what the slot holds is not needed any more
    COPY = "copy"  # page -> page, of the pool
    CLEAR = "clear"  # what an earlier owner left in the page


class Account(Protocol):
    """Counts the pages that one process is charged for: each page is charged once."""

    pages: int


class Nobody:
    """The account of pages that no process is charged for."""

    def __init__(self) -> None:
        self.pages = 0


class PagePool:
    """A fixed number of pages of `page_size` slots."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 2 or page_size < 1:
            raise ValueError(f"{num_pages} pages of {page_size} slots cannot serve anything")
        self.num_pages = num_pages
        self.page_size = page_size
        self.refs = [0] * num_pages
        self.generation = [0] * num_pages  # rises whenever what a page held is given up
        self._nobody = Nobody()
        self._accounts: list[Account] = [self._nobody] * num_pages
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))
        self._keys: dict[int, bytes] = {}  # of pages
        self._pages: dict[bytes, int] = {}  # the same, the other way round
        self._cached: dict[int, None] = {}  # least recently used first
        self.was_used = bytearray(num_pages)
        self.moves: list[tuple[Move, int, int]] = []

    @property
    def capacity(self) -> int:
        """Pages that can be handed out in total."""
        return self.num_pages - 1

    @property
    def num_free(self) -> int:
        """Pages that can be had at once: free ones, and cached ones that nobody holds."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Pages that nobody holds, but whose content may be found again."""
        return len(self._cached)

    def pages_for(self, length: int) -> int:
        """Pages that `length` slots take."""
        return -(-length // self.page_size)

    # ---- taking and giving back

    def take(
        self, count: int, account: Account | None = None, *, is_filled: bool = False
    ) -> list[int]:
        """`count` pages, one reference each. The caller has made sure that they can be had.

        They will be empty, unless they are to be filled as whole pages.
        """
        if count == 0:
            return []
        assert count <= self.num_free, f"{count} pages taken of {self.num_free} free ones"
        while len(self._free) < count:
            self._evict()
        taken = self._free[-count:]
        del self._free[-count:]
        account = account or self._nobody
        account.pages += count
        for page in taken:
            self.refs[page] = 1
            self._accounts[page] = account
            if not self.was_used[page]:
                self.was_used[page] = True
            elif not is_filled:
                self.moves.append((Move.CLEAR, page, 0))
        return taken

    def share(self, pages: Iterable[int], account: Account | None = None) -> None:
        """One more reference to each. The account is charged for those that nobody held."""
        refs = self.refs
        for page in pages:
            if refs[page] == 0:
                del self._cached[page]
                self._accounts[page] = account or self._nobody
                self._accounts[page].pages += 1
            refs[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """One reference less to each. Of a sequence that is given up, the last pages go first."""
        refs = self.refs
        for page in reversed(pages):
            refs[page] -= 1
            if refs[page] == 0:
                self._accounts[page].pages -= 1
                self._accounts[page] = self._nobody
                if page in self._keys:
                    self._cached[page] = None
                else:
                    self.generation[page] += 1
                    self._free.append(page)

    def charge(self, pages: Iterable[int], account: Account, instead_of: Account) -> None:
        """Those of the held pages that the one account is charged for go to the other."""
        for page in pages:
            if self._accounts[page] is instead_of:
                self._accounts[page] = account
                account.pages += 1
                instead_of.pages -= 1

    # ---- the prefix cache

    def enter(self, page: int, key: bytes) -> None:
        """A held page is full and frozen, and `key` names all that it and those before it hold."""
        if key not in self._pages and page not in self._keys:
            self._pages[key] = page
            self._keys[page] = key

    def find(self, key: bytes) -> int | None:
        """The page that `enter` got this key for, unless it has been needed for something else."""
        return self._pages.get(key)

    def forget(self, page: int) -> None:
        """A held page is about to be written: it no longer holds what its key says."""
        self.generation[page] += 1
        key = self._keys.pop(page, None)
        if key is not None:
            del self._pages[key]

    def drop_cached(self) -> None:
        """Frees all pages that nobody holds."""
        while self._cached:
            self._evict()

    def _evict(self) -> None:
        page = next(iter(self._cached))
        del self._cached[page]
        self.forget(page)
        self._free.append(page)

    # ---- integrity

    def check_integrity(self, owners: Iterable[Sequence[int]]) -> None:
        """AssertionError unless every page is free, cached or held, and counted once a holder."""
        held = Counter(page for pages in owners for page in pages)
        assert NULL_PAGE not in held, "the null page is held"
        free = set(self._free) | self._cached.keys()
        assert len(free) == self.num_free, "a page is free twice"
        assert not free & held.keys(), f"pages {sorted(free & held.keys())} are free and held"
        assert len(free) + len(held) == self.capacity, (
            f"{len(free)} free and {len(held)} held pages of {self.capacity}"
        )
        wrong = {page for page, count in held.items() if self.refs[page] != count}
        assert not wrong, f"reference counts of pages {sorted(wrong)} differ from their holders"
        assert self._cached.keys() <= self._keys.keys(), "a cached page cannot be found"
        assert not self._keys.keys() & set(self._free), "a free page can be found"
        assert {page: key for key, page in self._pages.items()} == self._keys, "keys disagree"

    def charges(self) -> Counter[Account]:
        """How many held pages each account is charged for, counted anew."""
        return Counter(
            self._accounts[page] for page in range(1, self.num_pages) if self.refs[page]
        )
