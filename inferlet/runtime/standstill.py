"""Whether a task waits, through other tasks, for nothing but certain futures. Changes nothing."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Any

_WAITERS = ("asyncio/taskgroups.py", "asyncio/tasks.py")  # whose coroutines hold what they wait for


def all_that_is_awaited(task: asyncio.Task) -> list[asyncio.Future]:
    """What must end before `task` goes on: a future, a task, or all of several."""
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return []
    if children := getattr(waiter, "_children", None):  # of `gather`
        return [child for child in children if not child.done()]
    if isinstance(waiter, asyncio.Task):
        return [waiter]
    return [child for child in _held(task.get_coro()) if not child.done()] or [waiter]


def waits_only_for(task: asyncio.Task, futures: Collection[asyncio.Future]) -> bool:
    """Whether every way from `task` leads to one of `futures`."""
    seen: set[asyncio.Future] = set()
    ahead = all_that_is_awaited(task)
    if not ahead:
        return False
    while ahead:
        future = ahead.pop()
        if future in futures or future in seen:
            continue
        seen.add(future)
        further = all_that_is_awaited(future) if isinstance(future, asyncio.Task) else []
        if not further:
            return False
        ahead += further
    return True


def _held(coroutine: Any) -> Iterator[asyncio.Future]:
    """Tasks that a TaskGroup, `wait` or `wait_for` at the coroutine's innermost await waits for."""
    frame = None
    while (inner := getattr(coroutine, "cr_frame", None)) is not None:
        frame, coroutine = inner, coroutine.cr_await
    if frame is None or not frame.f_code.co_filename.endswith(_WAITERS):
        return
    values = frame.f_locals
    yield from getattr(values.get("self"), "_tasks", ())
    yield from values.get("fs") or ()
    if isinstance(values.get("fut"), asyncio.Future):
        yield values["fut"]
