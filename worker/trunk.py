"""Trunks: full pages that several working sets begin with, held once for all of them. No tensors.

    trunk    pages [start, end) of its users, after those of its parent; never written
    users    working sets and trunks that continue it: awake ones, or suspended ones

A fork makes one trunk of what its parent has filled since its last fork, and adds one user. So it
costs and keeps the same for every length, and so does dropping either of them. Pages lie in the
pool while some user is awake. They are saved while some user is suspended, once for all of these.
Trees may be deep: whatever walks up a tree does it in a loop, and ends where nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from worker.pages import PagePool

if TYPE_CHECKING:
    from worker.swap import Saved, Swap


class Trunk:
    __slots__ = ("pool", "parent", "start", "end", "pages", "keys", "awake", "asleep", "saved")

    def __init__(self, pool: PagePool, parent: Trunk | None) -> None:
        self.pool = pool
        self.parent = parent
        self.start = self.end = parent.end if parent is not None else 0  # in pages
        self.pages: list[int] = []  # while some user is awake
        self.saved: list[Saved] = []  # while some user is suspended
        self.keys: list[bytes] = []  # of its leading pages, as far as they have any
        self.awake = 0  # users that are
        self.asleep = 0  # … and that are suspended

    def grow(self, pages: list[int], saved: list[Saved], keys: list[bytes]) -> None:
        """Takes over the references to these pages, of its only user, or what they held."""
        self.pages += pages
        self.saved += saved
        self.keys += keys
        self.end += len(pages) or len(saved)


def lineage(trunk: Trunk | None) -> Iterator[Trunk]:
    """The trunk, its parent, and so on."""
    while trunk is not None:
        yield trunk
        trunk = trunk.parent


def distinct(trunks: Iterable[Trunk | None]) -> Iterator[Trunk]:
    """These trunks and all that they continue, each once."""
    seen: set[Trunk] = set()
    for tip in trunks:
        for trunk in lineage(tip):
            if trunk in seen:
                break
            seen.add(trunk)
            yield trunk


# ---- users come and go; what changes only for the first or last user goes on to the parent


def add_awake(trunk: Trunk | None) -> None:
    """The caller has brought the pages back of those that nobody awake used."""
    for user in lineage(trunk):
        user.awake += 1
        if user.awake > 1:
            break


def remove_awake(trunk: Trunk | None) -> None:
    for user in lineage(trunk):
        user.awake -= 1
        if user.awake:
            break
        user.pool.release(user.pages)
        user.pages = []


def add_asleep(trunk: Trunk | None, swap: Swap) -> None:
    """Called while the user is still awake, for the pages are saved if they are not."""
    for user in lineage(trunk):
        user.asleep += 1
        if user.asleep > 1:
            break
        user.saved = swap.save(user.pages, len(user.pages))


def remove_asleep(trunk: Trunk | None, swap: Swap) -> None:
    for user in lineage(trunk):
        user.asleep -= 1
        if user.asleep:
            break
        swap.release(user.saved)
        user.saved = []


# ---- suspended users


def sleeping(trunk: Trunk | None) -> list[Trunk]:
    """Those of the lineage whose pages are not in the pool: all of their users are suspended."""
    found = []
    for user in lineage(trunk):
        if user.awake:
            break
        found.append(user)
    return found


def unsaved_pages(trunk: Trunk | None) -> int:
    """Pages of the lineage that are not saved yet."""
    count = 0
    for user in lineage(trunk):
        if user.asleep:
            break
        count += len(user.pages)
    return count


# ---- integrity


def check_integrity(users: Iterable[tuple[Trunk | None, bool]]) -> None:
    """AssertionError unless trunks count their users: for each set its trunk, and if it is awake."""
    awake: Counter[Trunk] = Counter()
    asleep: Counter[Trunk] = Counter()
    users = [(trunk, is_awake) for trunk, is_awake in users if trunk is not None]
    for trunk, is_awake in users:
        (awake if is_awake else asleep)[trunk] += 1
    trunks = list(distinct(trunk for trunk, _ in users))
    for trunk in trunks:
        awake[trunk.parent] += trunk.awake > 0
        asleep[trunk.parent] += trunk.asleep > 0
    for trunk in trunks:
        assert (trunk.awake, trunk.asleep) == (awake[trunk], asleep[trunk]), "users are miscounted"
        length = trunk.end - trunk.start
        assert len(trunk.pages) == (length if trunk.awake else 0), "pages of an unused trunk"
        assert len(trunk.saved) == (length if trunk.asleep else 0), "saved for nobody"
        assert trunk.start == (trunk.parent.end if trunk.parent is not None else 0)
