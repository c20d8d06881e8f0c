"""Memory for what has come only in part, and for what waits, of all: each alone is within its own bound.

A long message gets all the memory that it will need at its beginning, so that whoever has begun can
end. The others wait unread, in turn. One that has begun and sends nothing more while others wait, or
next to nothing, is at fault.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

STALL_SECONDS = 20.0  # without a byte, while others wait
FIRST_SECONDS = 2.0  # the same for one that has waited so long that it should have sent more
BYTES_PER_SECOND = 4 << 20  # at least, beside that: a byte now and then is as good as none
LOOK_SECONDS = 1.0


class Backlog:
    """What waits for those who do not read: beyond `limit` bytes of all, the largest is at fault."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[Hashable, int] = {}
        self._on_fault: dict[Hashable, Callable[[], None]] = {}
        self.total = 0

    def set(self, holder: Hashable, size: int, on_fault: Callable[[], None]) -> None:
        """So much waits for it now."""
        self.total += size - self._sizes.get(holder, 0)
        if not size:
            self._sizes.pop(holder, None)
            self._on_fault.pop(holder, None)
            return
        self._sizes[holder], self._on_fault[holder] = size, on_fault
        while self.total > self._limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.total -= self._sizes.pop(largest)
            self._on_fault.pop(largest)()


@dataclass(slots=True)
class _Claim:
    size: int
    on_room: Callable[[], None]
    on_stall: Callable[[], None]
    time: float  # of its last byte
    begun: float  # when it got its memory; while it waits, when it asked

    def stalls(self, now: float) -> bool:
        whole = STALL_SECONDS + self.size / BYTES_PER_SECOND
        return now - self.time > STALL_SECONDS or now - self.begun > whole


class Share:
    """Made inside a running loop, or before it; `limit` bytes for all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[Hashable, _Claim] = {}
        self._waiting: dict[Hashable, _Claim] = {}  # first come, first served
        self._timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> int:
        return sum(claim.size for claim in self._held.values())

    def ask(
        self,
        holder: Hashable,
        size: int,
        on_room: Callable[[], None],
        on_stall: Callable[[], None],
    ) -> bool:
        """Whether `holder` may read on: to be asked after each read, with the size of its
        unfinished message (0: none that is long). If not, `on_room` says when."""
        if not size:
            self.give(holder)
            return True
        now = asyncio.get_running_loop().time()
        if claim := self._held.get(holder):
            claim.time = now
            if claim.size == size:
                return True
            self.give(holder)  # it has begun the next one
        claim = _Claim(size, on_room, on_stall, now, now)
        if not self._waiting and self._fits(size):
            self._held[holder] = claim
            return True
        self._waiting[holder] = claim
        self._watch()
        return False

    def give(self, holder: Hashable) -> None:
        """It needs nothing any more."""
        had = self._held.pop(holder, None) or self._waiting.pop(holder, None)
        while had and self._waiting:
            first = next(iter(self._waiting))
            if not self._fits(self._waiting[first].size):
                return
            claim = self._held[first] = self._waiting.pop(first)
            claim.begun = asyncio.get_running_loop().time()
            claim.time = max(claim.time, claim.begun - STALL_SECONDS + FIRST_SECONDS)
            claim.on_room()

    def _fits(self, size: int) -> bool:
        return not self._held or self.used + size <= self._limit

    def _watch(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for claim in [claim for claim in self._held.values() if claim.stalls(now)]:
            if self._waiting:
                claim.on_stall()
        self._watch()


class Memory:
    """Of the hub, for all processes: what has come in part, and what waits for them."""

    def __init__(self, unfinished: int, unread: int) -> None:
        self.unfinished = Share(unfinished)
        self.unread = Backlog(unread)
