"""WorkingSet: the pages of one sequence, and how many of their slots are filled. No tensors.

    slot:  0 ...... frozen ........ length .......... len(pages) * page_size
           | written once| tail      | room of a pass in progress, empty
           | for ever    |           | otherwise at most the rest of the last page

Folding geometry freezes every row at commit: then `frozen == length`, and slot s holds position s.
Explicit placement may leave a tail, slots without a row, and pages without any (NULL_PAGE).
What a pass changes is written and taken back in changes.py.
Full pages that it has in common with its forks are held by a trunk; only what follows is its own:

    pages: 0 ....... trunk.end ....... len(pages)
           | held once | this set's own references

A suspended set holds no pages: what they held is `saved`, and comes back before its next wave.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from ipc.geometry import Slots
from worker import changes, trunk
from worker.changes import Change
from worker.history import History
from worker.pages import NULL_PAGE, Account, PagePool
from worker.swap import Saved, Swap
from worker.trunk import Trunk


class WorkingSet:
    __slots__ = (
        "pool", "account", "trunk", "pages", "shares_table", "length",
        "pending", "user", "fork_point", "forks", "dropped",
        "history", "cached", "saved", "swap", "last_wave", "restored_wave",
        "frozen", "reserved", "host_reserved", "positions", "change", "changes",
        "is_released",
    )  # fmt: skip

    def __init__(self, pool: PagePool, account: Account, root: bytes = b"") -> None:
        self.pool = pool
        self.account = account
        self.trunk: Trunk | None = None
        self.pages = array("i")  # all of them, those of the trunk too
        self.shares_table = False  # `pages` is that of a fork, too: not to be changed
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
        self.saved: list[Saved | None] | None = None  # suspended: what its own pages held
        self.swap: Swap | None = None  # where that is
        self.last_wave = 0  # that it was part of
        self.restored_wave = 0

    @property
    def slots(self) -> Slots:
        """What placing rows depends on."""
        return Slots(self.frozen, self.length, self.reserved, self.positions)

    @property
    def writable_pages(self) -> int:
        """Pages that explicit rows may touch at most."""
        return self.pool.pages_for(self.reserved) - self.frozen // self.pool.page_size

    @property
    def own_start(self) -> int:
        """The first page that it does not have from its trunk."""
        return self.trunk.end if self.trunk is not None else 0

    @property
    def held_pages(self) -> list[int]:
        """Every page that it refers to itself, once for each reference."""
        own = [page for page in self.pages[self.own_start :] if page != NULL_PAGE]
        return own + changes.kept(self) if self.saved is None else []

    @property
    def holdings(self) -> set[int | Saved]:
        """Its pages, and what of them is saved."""
        present = [page for user in trunk.lineage(self.trunk) for page in user.pages]
        return {*present, *self.pages, *self.absent}

    @property
    def absent(self) -> list[Saved]:
        """What must come back before it can run."""
        if self.saved is None:
            return []
        asleep = trunk.sleeping(self.trunk)
        return [one for user in asleep for one in user.saved] + self.own_saved

    @property
    def own_saved(self) -> list[Saved]:
        """What is saved of the pages that it held itself, once for each reference."""
        if self.saved is None:
            return []
        return [one for one in self.saved if one is not None] + changes.kept(self)

    @property
    def pages_to_save(self) -> int:
        """How much room in host memory it takes to suspend it."""
        return len(self.held_pages) + trunk.unsaved_pages(self.trunk)

    @property
    def may_be_suspended(self) -> bool:
        """Not while a pass is placed."""
        return self.change is None

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
        held = len(self.pages) if self.saved is None else self.own_start + len(self.saved)
        if skipped:
            held = (self.length + skipped) // self.pool.page_size
        new = self.pool.pages_for(self.length + rows) - held
        return max(new, 0) + (not skipped and self._tail_is_shared(or_may_be=True))

    def adopt(self, pages: Sequence[int]) -> None:
        """Cached pages hold what the slots from `length` on will hold, and the rest of its page."""
        first = self.length // self.pool.page_size
        self.pool.share(pages, self.account)
        self.pool.release(self.pages[first:])
        self.own_table()[first:] = array("i", pages)

    def extend(self, rows: int, skipped: int = 0) -> list[tuple[int, int]]:
        """Makes slots `[length + skipped, length + rows)` writable: ours alone. The skipped ones are
        on adopted pages.

        Gives the pages to copy first, (source, destination): partly filled ones with other owners.
        """
        if rows == skipped:
            return []
        copies = []
        self.own_table()
        if skipped:
            self.pages.extend(self._take(self.pool.pages_for(self.length + rows) - len(self.pages)))
            return []
        if self._tail_is_shared():
            index = self.length // self.pool.page_size
            shared, (own,) = self.pages[index], self._take(1, is_filled=True)
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
        self.leave_trunk(self.length // self.pool.page_size)
        end = self.pool.pages_for(self.length)
        if end < len(self.pages):
            self.pool.release([page for page in self.pages[end:] if page != NULL_PAGE])
            del self.own_table()[end:]
        elif self.saved is not None and (end := end - self.own_start) < len(self.saved):
            self.swap.release(self.saved[end:])
            del self.saved[end:]

    def reserve(self, end: int) -> None:
        """The host lets slots below `end` be written, also in a child that is still to be forked"""
        self.host_reserved = max(self.host_reserved, end)
        self.reserved = max(self.reserved, end)

    # ---- forks

    def share_with(self, child: "WorkingSet") -> None:
        """Gives an empty `child` the same content. No page is copied until one of them writes."""
        assert not child.pages
        self._grow_trunk()
        child.trunk, child.pages, child.length = self.trunk, self.pages, self.length
        self.shares_table = child.shares_table = True
        child.history, child.cached = self.history.copy(), self.cached
        child.last_wave, child.restored_wave = self.last_wave, self.restored_wave
        child.frozen, child.positions = self.frozen, self.positions
        child.host_reserved = max(child.host_reserved, self.host_reserved)
        child.reserved = max(child.reserved, self.reserved)
        if self.saved is not None:
            child.saved, child.swap = self.saved[:], self.swap
            self.swap.share(child.saved)
            trunk.add_asleep(child.trunk, self.swap)
        else:
            own = self.pages[self.own_start :]
            self.pool.share([page for page in own if page != NULL_PAGE])
            trunk.add_awake(child.trunk)

    def own_table(self) -> array:
        """`pages`, to be changed: forks share it until one of them does."""
        if self.shares_table:
            self.pages, self.shares_table = self.pages[:], False
        return self.pages

    def leave_trunk(self, index: int) -> None:
        """Pages from `index` on become its own: they may be given up, or replaced."""
        while self.trunk is not None and self.trunk.end > index:
            left = self.trunk
            self.trunk = left.parent
            if self.saved is None:
                self.pool.share(left.pages)
                trunk.add_awake(left.parent)
                trunk.remove_awake(left)
            else:
                self.swap.share(left.saved)
                self.saved = left.saved + self.saved
                trunk.add_asleep(left.parent, self.swap)
                trunk.remove_asleep(left, self.swap)

    def _grow_trunk(self) -> None:
        """Its own full pages go to the trunk; only those with known keys, if keys are to come."""
        history, size, start = self.history, self.pool.page_size, self.own_start
        end = self.length // size
        if history.num_keyed * size + size <= history.length:
            end = min(end, history.num_keyed)
        if NULL_PAGE in (own := self.pages[start:end]):
            end = start + own.index(NULL_PAGE)
        if end <= start:
            return
        if self.trunk is None or self.trunk.awake + self.trunk.asleep > 1:
            # The new trunk takes this set's place among the users of the old one.
            self.trunk = Trunk(self.pool, self.trunk)
            self.trunk.awake, self.trunk.asleep = self.saved is None, self.saved is not None
        is_aligned = history.start // size == start
        keys = history.forget_pages(end)
        keys = keys if is_aligned else []
        if self.saved is None:
            self.trunk.grow(own[: end - start].tolist(), [], keys)
        else:
            self.trunk.grow([], self.saved[: end - start], keys)
            del self.saved[: end - start]

    def release(self) -> None:
        """Holds nothing any more."""
        self.is_released = True
        changes.release(self)
        if self.saved is None:
            self.pool.release(self.held_pages)
            trunk.remove_awake(self.trunk)
        else:
            self.swap.release(self.saved)
            trunk.remove_asleep(self.trunk, self.swap)
        self.trunk, self.pages, self.shares_table, self.saved = None, array("i"), False, None
        self.truncate(0)

    # ---- memory pressure

    def suspend(self, swap: Swap) -> None:
        """Gives all pages back; what they hold is kept in host memory."""
        own, num_full = self.pages[self.own_start :], self.frozen // self.pool.page_size
        trunk.add_asleep(self.trunk, swap)
        self.saved, self.swap = swap.save(own, num_full - self.own_start), swap
        self.pool.release([page for page in own if page != NULL_PAGE])
        changes.suspend(self)
        trunk.remove_awake(self.trunk)
        self.pages, self.shares_table = array("i"), False

    def restore(self) -> None:
        """Has pages again. The caller has made sure that they can be had."""
        asleep = trunk.sleeping(self.trunk)
        saved = [one for user in asleep for one in user.saved] + self.saved
        back = iter(self.swap.bring_back(saved, self.account))
        for user in asleep:
            user.pages = list(islice(back, user.end - user.start))
            self._enter(user.pages, user.keys)
        own = list(back)
        if self.own_start == self.history.start // self.pool.page_size:
            self._enter(own, self.history.keys)
        trunk.add_awake(self.trunk)
        trunk.remove_asleep(self.trunk, self.swap)
        self.swap.release(self.saved)
        changes.restore(self)
        self.saved = None
        parts = [*reversed([user.pages for user in trunk.lineage(self.trunk)]), own]
        self.pages = array("i", chain.from_iterable(parts))

    def _enter(self, pages: Sequence[int], keys: Sequence[bytes]) -> None:
        for page, key in zip(pages, keys):
            self.pool.enter(page, key)

    # ---- the prefix cache

    def enter_pages(self) -> None:
        """Pages that have become full, of tokens that are known, may be found from now on."""
        if self.saved is None:
            for index, key in self.history.new_keys():
                self.pool.enter(self.pages[index], key)

    def _take(self, count: int, *, is_filled: bool = False) -> list[int]:
        return self.pool.take(count, self.account, is_filled=is_filled)

    def _tail_is_shared(self, or_may_be: bool = False) -> bool:
        index, filled = divmod(self.length, self.pool.page_size)
        if self.saved is not None:
            # Rows of a full page were undone meanwhile: it may come back as somebody else's, too.
            return or_may_be and filled > 0 and self.saved[-1].is_full
        return filled > 0 and self.pool.refs[self.pages[index]] > 1


def references(sets: Iterable[WorkingSet]) -> list[Sequence[int]]:
    """Every page that these sets hold, by themselves or by their trunks, once a reference."""
    sets = list(sets)
    trunks = trunk.distinct(held.trunk for held in sets)
    return [held.held_pages for held in sets] + [user.pages for user in trunks]


def saved_references(sets: Iterable[WorkingSet]) -> list[Sequence[Saved]]:
    """Likewise, of what is saved."""
    sets = list(sets)
    trunks = trunk.distinct(held.trunk for held in sets)
    return [held.own_saved for held in sets] + [user.saved for user in trunks]
