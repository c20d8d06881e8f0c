"""What one placed fire does to a working set's pages and slots, and how it is taken back.

    write    pages for the rows: nobody else's, and never over a row that may be wanted again
    commit   the slots are as after the fire
    revert   … as before it: after a failure, or when a run is undone
    forget   it cannot be taken back any more: pages that were kept for that are given up

Rows that are overwritten stay on their old page, which the change keeps: the new rows go to a copy.
Slots that are emptied keep theirs in the same way. So appending costs nothing, and neither does a
change that nobody takes back. Pages come from `spare`, taken when the wave was formed.
What a change keeps is saved and brought back together with its working set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipc.geometry import EMPTY, Placed, Slots
from worker.pages import NULL_PAGE

if TYPE_CHECKING:
    from worker.swap import Saved
    from worker.working_set import WorkingSet

Copies = list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class Change:
    """A working set before a fire: its slots, and the pages that the fire has replaced."""

    before: Slots
    num_pages: int
    # (index, page that was there, or NULL_PAGE), one reference each; suspended: what that held
    pages: list[tuple[int, int | Saved | None]]


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
    if held.saved is None:
        _put_back(held, change)
    else:
        _put_back_saved(held, change)
    change.pages = []
    _keep(held, change)
    before = change.before
    _set_slots(held, before._replace(reserved=max(before.reserved, held.host_reserved)))
    held.truncate(before.extent)


def _put_back(held: WorkingSet, change: Change) -> None:
    table = held.own_table() if change.pages else held.pages
    for index, page in change.pages:
        table.extend([NULL_PAGE] * (index + 1 - len(table)))
        _give_up(held, [table[index]])
        table[index] = page


def _put_back_saved(held: WorkingSet, change: Change) -> None:
    for index, saved in change.pages:
        place = index - held.own_start
        held.saved.extend([None] * (place + 1 - len(held.saved)))
        held.swap.release([held.saved[place]])
        held.saved[place] = saved


def forget(held: WorkingSet, change: Change) -> None:
    """The change is for good."""
    if change.pages:
        kept = [page for _, page in change.pages]
        if held.saved is None:
            _give_up(held, kept)
        else:
            held.swap.release(kept)
        change.pages = []
        _keep(held, change)


def release(held: WorkingSet) -> None:
    """The working set is no more, and neither is what could be taken back."""
    for change in held.changes[:]:
        forget(held, change)
    held.change = None


# ---- a suspended working set: called while it still, or again, has pages of its own


def kept(held: WorkingSet) -> list[int | Saved]:
    """What its changes keep: pages, or what is saved of them."""
    pages = [page for change in held.changes for _, page in change.pages]
    return [page for page in pages if page is not None and page != NULL_PAGE]


def suspend(held: WorkingSet) -> None:
    for change in held.changes:
        pages = [page for _, page in change.pages]
        saved = held.swap.save(pages, 0)
        _give_up(held, pages)
        change.pages = [(index, one) for (index, _), one in zip(change.pages, saved)]


def restore(held: WorkingSet) -> None:
    for change in held.changes:
        saved = [one for _, one in change.pages]
        pages = held.swap.bring_back(saved, held.account)
        held.swap.release(saved)
        change.pages = [(index, page) for (index, _), page in zip(change.pages, pages)]


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
