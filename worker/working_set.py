"""WorkingSet: the pages of one sequence, and how many of their slots are filled. No tensors.

    slot:  0 ...... frozen ........ length .......... len(pages) * page_size
           | written once| tail      | room of a pass in progress, empty
           | for ever    |           | otherwise at most the rest of the last page

Folding geometry freezes every row at commit: then `frozen == length`, and slot s holds position s.
Explicit placement may leave a tail, slots without a row, and pages without any (NULL_PAGE).
What a pass changes is written and taken back in changes.py.
A suspended set holds no pages: what they held is `saved`, and comes back before its next wave.
"""

from array import array
from collections.abc import Sequence

from ipc.geometry import Slots
from worker import changes
from worker.changes import Change
from worker.history import History
from worker.pages import NULL_PAGE, Account, PagePool
from worker.swap import Saved, Swap


class WorkingSet:
    __slots__ = (
        "pool", "account", "pages", "length", "pending", "user", "fork_point", "forks", "dropped",
        "history", "cached", "saved", "swap", "last_wave", "restored_wave",
        "frozen", "reserved", "host_reserved", "positions", "change", "changes",
        "is_released",
    )  # fmt: skip

    def __init__(self, pool: PagePool, account: Account, root: bytes = b"") -> None:
        self.pool = pool
        self.account = account
        self.pages = array("i")
        self.length = 0  # one past the last filled slot
        self.frozen = 0
        self.reserved = 0  # slots below may be written; by the host alone: `host_reserved`
        self.host_reserved = 0
        self.positions: tuple[int, ...] | None = None  # by slot; None: each its own number
        self.change: Change | None = None  # of the placed fire in progress
        self.is_released = False
        self.changes: list[Change] = []  # that hold pages, so that they can be taken back
        self.pending = 0  # accepted fires and runs that use it
        self.user = None  # the pipeline that used it last
        self.fork_point = None  # set until the fork that makes it has happened
        self.forks = []  # fork points with it as parent that wait for their turn
        self.dropped = False
        self.history = History(pool.page_size, root)
        self.cached = 0  # leading tokens that came from the cache
        self.saved: list[Saved] | None = None  # suspended: what its pages held
        self.swap: Swap | None = None  # where that is
        self.last_wave = 0  # that it was part of
        self.restored_wave = 0

    @property
    def frozen_length(self) -> int:
        return self.frozen

    @property
    def slots(self) -> Slots:
        """What placing rows depends on."""
        return Slots(self.frozen, self.length, self.reserved, self.positions)

    @property
    def writable_pages(self) -> int:
        """Pages that explicit rows may touch at most."""
        return self.pool.pages_for(self.reserved) - self.frozen // self.pool.page_size

    @property
    def held_pages(self) -> list[int]:
        """Every page that it refers to, once for each reference."""
        kept = [page for change in self.changes for _, page in change.pages]
        return [page for page in (*self.pages, *kept) if page != NULL_PAGE]

    @property
    def may_be_suspended(self) -> bool:
        """Not while a pass is placed or could be undone by pages, nor with slots that have no page."""
        return self.change is None and not self.changes and NULL_PAGE not in self.pages

    def has_room(self, rows: int) -> bool:
        """Whether the page that is written next is there and nobody else's: for most decodes."""
        index, filled = divmod(self.length, self.pool.page_size)
        return (
            filled > 0
            and filled + rows <= self.pool.page_size
            and index < len(self.pages)
            and self.pool.refs[self.pages[index]] == 1
        )

    def pages_needed(self, rows: int, skipped: int = 0) -> int:
        """Free pages that `extend(rows, skipped)` will take, once the set is awake."""
        if rows == skipped:
            return 0
        held = len(self.pages) if self.saved is None else len(self.saved)
        if skipped:
            held = (self.length + skipped) // self.pool.page_size
        new = self.pool.pages_for(self.length + rows) - held
        return max(new, 0) + (not skipped and self._tail_is_shared())

    def adopt(self, pages: Sequence[int]) -> None:
        """Cached pages hold what the slots from `length` on will hold, and the rest of its page."""
        first = self.length // self.pool.page_size
        self.pool.share(pages, self.account)
        self.pool.release(self.pages[first:])
        self.pages[first:] = array("i", pages)

    def extend(self, rows: int, skipped: int = 0) -> list[tuple[int, int]]:
        """Makes slots `[length + skipped, length + rows)` writable: ours alone. The skipped ones are
        on adopted pages.

        Gives the pages to copy first, (source, destination): partly filled ones with other owners.
        """
        if rows == skipped:
            return []
        copies = []
        if skipped:
            self.pages.extend(self._take(self.pool.pages_for(self.length + rows) - len(self.pages)))
            return []
        if self._tail_is_shared():
            index = self.length // self.pool.page_size
            shared, (own,) = self.pages[index], self._take(1)
            self.pages[index] = own
            self.pool.release([shared])
            copies.append((shared, own))
        end = self.pool.pages_for(self.length + rows)
        self.pages.extend(self._take(max(end - len(self.pages), 0)))
        first = self.length // self.pool.page_size
        assert all(self.pool.refs[page] == 1 for page in self.pages[first:end])
        self.pool.forget(self.pages[first])  # rows of an undone fire may have filled it before
        return copies

    def truncate(self, length: int) -> None:
        """Forgets the slots from `length` on, and room that was made beyond."""
        self.length = min(self.length, length)
        self.cached = min(self.cached, self.length)
        self.history.truncate(self.length)
        end = self.pool.pages_for(self.length)
        if end < len(self.pages):
            self.pool.release([page for page in self.pages[end:] if page != NULL_PAGE])
            del self.pages[end:]
        elif self.saved is not None:
            self.swap.release(self.saved[end:])
            del self.saved[end:]

    def reserve(self, end: int) -> None:
        """The host lets slots below `end` be written: also in a child that is still to be forked."""
        self.host_reserved = max(self.host_reserved, end)
        self.reserved = max(self.reserved, end)

    def share_with(self, child: "WorkingSet") -> None:
        """Gives an empty `child` the same content. No page is copied until one of them writes."""
        assert not child.pages
        child.pages, child.length = self.pages[:], self.length
        child.history, child.cached = self.history.copy(), self.cached
        child.last_wave, child.restored_wave = self.last_wave, self.restored_wave
        self.pool.share([page for page in child.pages if page != NULL_PAGE])
        child.frozen, child.positions = self.frozen, self.positions
        child.host_reserved = max(child.host_reserved, self.host_reserved)
        child.reserved = max(child.reserved, self.reserved)
        if self.saved is not None:
            child.saved, child.swap = self.saved[:], self.swap
            self.swap.share(child.saved)

    def release(self) -> None:
        """Holds nothing any more."""
        self.is_released = True
        changes.release(self)
        self.truncate(0)

    # ---- memory pressure

    def suspend(self, swap: Swap) -> None:
        """Gives all pages back; what they hold is kept in host memory."""
        num_full = self.frozen_length // self.pool.page_size
        self.saved, self.swap = swap.save(self.pages, num_full), swap
        self.pool.release(self.pages)
        del self.pages[:]

    def restore(self) -> None:
        """Has pages again. The caller has made sure that they can be had."""
        self.pages = array("i", self.swap.restore(self.saved, self.account))
        self.saved = None
        for page, key in zip(self.pages, self.history.keys):
            self.pool.enter(page, key)

    # ---- the prefix cache

    def enter_pages(self) -> None:
        """Pages that have become full, of tokens that are known, may be found from now on."""
        if self.saved is None:
            for index, key in self.history.new_keys():
                self.pool.enter(self.pages[index], key)

    def _take(self, count: int) -> list[int]:
        return self.pool.take(count, self.account)

    def _tail_is_shared(self) -> bool:
        index, filled = divmod(self.length, self.pool.page_size)
        return filled > 0 and self.saved is None and self.pool.refs[self.pages[index]] > 1
