"""What one placed fire does to a working set's pages and slots, and how it is taken back.

    write    pages for the rows: nobody else's, and never over a row that may be wanted again
    commit   the slots are as after the fire
    revert   … as before it: after a failure, or when a run is undone
    forget   it cannot be taken back any more: pages that were kept for that are given up

Rows that are overwritten stay on their old page, which the change keeps: the new rows go to a copy.
Slots that are emptied keep theirs in the same way. So appending costs nothing, and neither does a
change that nobody takes back. Pages come from `spare`, taken when the wave was formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipc.geometry import EMPTY, Placed, Slots
from worker.pages import NULL_PAGE

if TYPE_CHECKING:
    from worker.working_set import WorkingSet

Copies = list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class Change:
    """A working set before a fire: its slots, and the pages that the fire has replaced."""

    before: Slots
    num_pages: int
    pages: list[tuple[int, int]]  # (index, page that was there, or NULL_PAGE): one reference each


def write(held: WorkingSet, placed: Placed, spare: list[int]) -> Copies:
    """Makes the rows' slots writable; the page copies that must come first."""
    pool, size = held.pool, held.pool.page_size
    before = held.slots
    change = held.change = Change(before, len(held.pages), [])
    touched = sorted({slot // size for slot in placed.slots})
    if touched:
        held.leave_trunk(touched[0])
        held.own_table()
    stored = before.stored
    overwritten = {
        slot // size
        for slot in placed.slots
        if slot < before.extent and stored[slot] != EMPTY
    }
    copies = []
    for index in touched:
        missing = index + 1 - len(held.pages)
        if missing > 0:
            held.pages.extend([NULL_PAGE] * missing)
        page = held.pages[index]
        if page != NULL_PAGE and pool.refs[page] == 1 and index not in overwritten:
            pool.forget(page)
            continue
        own = held.pages[index] = spare.pop()
        if page != NULL_PAGE:
            copies.append((page, own))
        if index in overwritten or (page == NULL_PAGE and index < change.num_pages):
            change.pages.append((index, page))
        elif page != NULL_PAGE:
            pool.release([page])
    _keep(held, change)
    return copies


def commit(held: WorkingSet, after: Slots) -> Change:
    """The fire has happened. Gives what it takes to undo it."""
    change = held.change or Change(held.slots, held.pool.pages_for(held.length), [])
    held.change = None
    if after.extent < held.length:
        _keep_emptied(held, change, after.extent)
    _set_slots(held, after)
    held.truncate(after.extent)
    return change


def append(held: WorkingSet, rows: int) -> Change:
    """`commit` of rows that folding geometry has appended to slots which hold their own position."""
    pool, before = held.pool, held.slots
    end = held.length + rows
    held.length = held.frozen = end
    if held.reserved < end:
        held.reserved = end
    if len(held.pages) * pool.page_size - end >= pool.page_size:
        held.truncate(end)  # room that absent rows did not use
    return Change(before, pool.pages_for(before.extent), [])


def _keep_emptied(held: WorkingSet, change: Change, extent: int) -> None:
    """The pages of slots from `extent` on: the change keeps them, for they held rows."""
    held.leave_trunk(extent // held.pool.page_size)
    held.own_table()
    kept = {index for index, _ in change.pages}
    end = held.pool.pages_for(extent)
    shared = extent // held.pool.page_size
    if shared < end and shared not in kept:
        held.pool.share([held.pages[shared]], held.account)
        change.pages.append((shared, held.pages[shared]))
    for index in range(end, change.num_pages):
        if index not in kept:
            change.pages.append((index, held.pages[index]))
            held.pages[index] = NULL_PAGE
    _keep(held, change)


def revert(held: WorkingSet, change: Change) -> None:
    """The working set is as it was before the fire, committed or not."""
    if held.change is change:
        held.change = None
    if held.is_released:
        return
    if change.pages:
        held.own_table()
    for index, page in change.pages:
        missing = index + 1 - len(held.pages)
        if missing > 0:
            held.pages.extend([NULL_PAGE] * missing)
        _give_up(held, [held.pages[index]])
        held.pages[index] = page
    change.pages = []
    _keep(held, change)
    before = change.before
    _set_slots(held, before._replace(reserved=max(before.reserved, held.host_reserved)))
    held.truncate(before.extent)


def forget(held: WorkingSet, change: Change) -> None:
    """The change is for good."""
    if change.pages:
        _give_up(held, [page for _, page in change.pages])
        change.pages = []
        _keep(held, change)


def release(held: WorkingSet) -> None:
    """The working set is no more, and neither is what could be taken back."""
    for change in held.changes[:]:
        forget(held, change)
    held.change = None


def _set_slots(held: WorkingSet, slots: Slots) -> None:
    held.length, held.frozen = slots.extent, slots.folded
    held.reserved, held.positions = slots.reserved, slots.positions


def _keep(held: WorkingSet, change: Change) -> None:
    """The working set knows the changes that hold pages."""
    if change.pages and change not in held.changes:
        held.changes.append(change)
    elif not change.pages and change in held.changes:
        held.changes.remove(change)


def _give_up(held: WorkingSet, pages: list[int]) -> None:
    held.pool.release([page for page in pages if page != NULL_PAGE])
