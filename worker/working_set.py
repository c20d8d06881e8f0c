"""WorkingSet: the pages of one sequence, and how many of their slots are filled. No tensors.

    slot:  0 .......... length .......... len(pages) * page_size
           | frozen,     | room of a pass in progress, empty
           | written once| otherwise at most the rest of the last page

Folding geometry freezes every row at commit, so the frozen prefix is `[0, length)`.
"""

from array import array
from typing import Protocol

from worker.pages import PagePool


class Account(Protocol):
    """Counts the distinct pages that one process holds."""

    pages: int


class WorkingSet:
    __slots__ = (
        "pool", "account", "pages", "length", "pending", "user", "fork_point", "forks", "dropped",
    )  # fmt: skip

    def __init__(self, pool: PagePool, account: Account) -> None:
        self.pool = pool
        self.account = account
        self.pages = array("i")
        self.length = 0
        self.pending = 0  # accepted fires and runs that use it
        self.user = None  # the pipeline that used it last
        self.fork_point = None  # set until the fork that makes it has happened
        self.forks = []  # fork points with it as parent that wait for their turn
        self.dropped = False

    @property
    def frozen_length(self) -> int:
        return self.length

    def pages_needed(self, rows: int) -> int:
        """Free pages that `extend(rows)` will take."""
        if rows == 0:
            return 0
        new = self.pool.pages_for(self.length + rows) - len(self.pages)
        return max(new, 0) + self._tail_is_shared()

    def extend(self, rows: int) -> list[tuple[int, int]]:
        """Makes slots `[length, length + rows)` writable: ours alone.

        Gives the pages to copy first, (source, destination): partly filled ones with other owners.
        """
        if rows == 0:
            return []
        copies = []
        if self._tail_is_shared():
            index = self.length // self.pool.page_size
            shared, (own,) = self.pages[index], self._take(1)
            self.pages[index] = own
            self.account.pages -= self.pool.release([shared])
            copies.append((shared, own))
        end = self.pool.pages_for(self.length + rows)
        self.pages.extend(self._take(max(end - len(self.pages), 0)))
        first = self.length // self.pool.page_size
        assert all(self.pool.refs[page] == 1 for page in self.pages[first:end])
        return copies

    def truncate(self, length: int) -> None:
        """Forgets the slots from `length` on, and room that was made beyond."""
        self.length = min(self.length, length)
        end = self.pool.pages_for(self.length)
        if end < len(self.pages):
            self.account.pages -= self.pool.release(self.pages[end:])
            del self.pages[end:]

    def share_with(self, child: "WorkingSet") -> None:
        """Gives an empty `child` the same content. No page is copied until one of them writes."""
        assert not child.pages
        child.pages, child.length = self.pages[:], self.length
        self.pool.share(child.pages)

    def release(self) -> None:
        """Holds nothing any more."""
        self.truncate(0)

    def _take(self, count: int) -> list[int]:
        self.account.pages += count
        return self.pool.take(count)

    def _tail_is_shared(self) -> bool:
        index, filled = divmod(self.length, self.pool.page_size)
        return filled > 0 and self.pool.refs[self.pages[index]] > 1
