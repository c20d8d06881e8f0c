"""A FIFO of items with waiters that are served in call order. A cancelled waiter loses no item.

Only the waiter at the head is ever woken, and it takes its item itself when it resumes: between
the two, the item still belongs to the queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
#: Why the waiter with so many earlier takers can never be served; None when it can.
Refusal = Callable[[int], BaseException | None]


class _Waiter:
    __slots__ = ("consumes", "future")

    def __init__(self, future: asyncio.Future, consumes: bool) -> None:
        self.future = future
        self.consumes = consumes


class Mailbox(Generic[T]):
    """Items, oldest first. `is_there`: whether an item in the queue may be taken yet."""

    def __init__(self, is_there: Callable[[T], bool] = lambda item: True) -> None:
        self.items: deque[T] = deque()
        self._is_there = is_there
        self._waiters: deque[_Waiter] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether the oldest item is there to be taken."""
        return bool(self.items) and self._is_there(self.items[0])

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiters)

    @property
    def waiting(self) -> list[asyncio.Future]:
        """What those wait for who can take nothing now."""
        return [] if self.is_ready else [waiter.future for waiter in self._waiters]

    def add(self, item: T) -> None:
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Lets the head look again: an item came, or none can come any more."""
        if self._waiters and not self._waiters[0].future.done():
            self._waiters[0].future.set_result(None)

    async def next(self, refusal: Refusal, consumes: bool = True) -> T:
        """The oldest item. Raises what `refusal` gives when none can come."""
        # `refusal` is no attribute: its owner owns this queue, and garbage must go at once.
        if not self._waiters and self.is_ready:
            return self.items.popleft() if consumes else self.items[0]
        error = refusal(sum(waiter.consumes for waiter in self._waiters))
        if error is not None:
            raise error
        waiter = _Waiter(asyncio.get_running_loop().create_future(), consumes)
        self._waiters.append(waiter)
        try:
            await self._turn(waiter, refusal)
            return self.items.popleft() if consumes else self.items[0]
        finally:
            self._waiters.remove(waiter)
            self.wake()

    async def _turn(self, waiter: _Waiter, refusal: Refusal) -> None:
        """Returns when the waiter is at the head and an item is there."""
        while True:
            await waiter.future
            waiter.future = asyncio.get_running_loop().create_future()
            if self._waiters[0] is not waiter:
                continue
            if self.is_ready:
                return
            error = refusal(0)
            if error is not None:
                raise error
