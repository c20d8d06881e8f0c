"""Pages: which are free, and how many hold each. Knows nothing about tensors or users.

A page with one reference may be written by its holder; a page with more is never written.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

NULL_PAGE = 0  # never handed out: kernels write their padding there


class PagePool:
    """A fixed number of pages of `page_size` slots."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 2 or page_size < 1:
            raise ValueError(f"{num_pages} pages of {page_size} slots cannot serve anything")
        self.num_pages = num_pages
        self.page_size = page_size
        self.refs = [0] * num_pages
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))

    @property
    def capacity(self) -> int:
        """Pages that can be handed out in total."""
        return self.num_pages - 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    def pages_for(self, length: int) -> int:
        """Pages that `length` slots take."""
        return -(-length // self.page_size)

    def take(self, count: int) -> list[int]:
        """`count` pages, one reference each. The caller has made sure that they are free."""
        if count == 0:
            return []
        assert count <= len(self._free), f"{count} pages taken of {len(self._free)} free ones"
        taken = self._free[-count:]
        del self._free[-count:]
        for page in taken:
            self.refs[page] = 1
        return taken

    def share(self, pages: Iterable[int]) -> None:
        """One more reference to each."""
        for page in pages:
            self.refs[page] += 1

    def release(self, pages: Iterable[int]) -> int:
        """One reference less to each; how many became free."""
        before = len(self._free)
        for page in pages:
            self.refs[page] -= 1
            if self.refs[page] == 0:
                self._free.append(page)
        return len(self._free) - before

    def check_integrity(self, owners: Iterable[Sequence[int]]) -> None:
        """AssertionError unless every page is free or held, and counted once for each holder."""
        held = Counter(page for pages in owners for page in pages)
        assert NULL_PAGE not in held, "the null page is held"
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & held.keys(), f"pages {sorted(free & held.keys())} are free and held"
        assert len(free) + len(held) == self.capacity, (
            f"{len(free)} free and {len(held)} held pages of {self.capacity}"
        )
        wrong = {page for page, count in held.items() if self.refs[page] != count}
        assert not wrong, f"reference counts of pages {sorted(wrong)} differ from their holders"
