"""The prefix cache from a fire's side: what it finds when it begins, what it leaves when it commits.

Plain rows that the host knows are looked up when their fire begins. What another fire is computing
at that moment is not computed twice: the fire waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.definitions import Lanes
from worker.history import Unread
from worker.state import Fire, State
from worker.working_set import WorkingSet


@dataclass(slots=True)
class Match:
    """What the cache has for one fire."""

    keys: list[list[bytes]]  # of each lane: the pages that its rows complete
    pages: list[list[int]]  # the leading ones of them that were found
    skipped: list[int]  # rows of each lane that they hold
    others: Fire | None = None  # it is computing what comes next


def can_match(state: State, fire: Fire) -> bool:
    """Whether it is worth looking: some page may become full with rows that the host knows."""
    return (
        state.config.prefix_cache
        and fire.lanes is not None
        and not fire.begun
        and fire.pass_.is_plain
        and len(fire.lanes.ids) >= 2
    )


def match(state: State, fire: Fire) -> Match:
    """What the cache has now; takes nothing."""
    if fire.keys is None:
        fire.keys = _keys(fire)
    found = Match(fire.keys, [], [])
    for lane, (working_set, keys) in enumerate(zip(fire.sets, fire.keys)):
        pages, skipped = [], 0
        if keys:
            size = state.pool.page_size
            first = working_set.length // size
            limit = (working_set.length + _first_readout(fire, lane)) // size - first
            for key in keys[:limit]:
                page = state.pool.find(key)
                if page is None:
                    break
                pages.append(page)
            coming = [key for key in keys[len(pages) : limit] if key in state.computing]
            if coming and len(coming) * size >= state.config.min_shared:
                found.others = state.computing[coming[0]]
            if pages:
                skipped = (first + len(pages)) * size - working_set.length
        found.pages.append(pages)
        found.skipped.append(skipped)
    return found


def _keys(fire: Fire) -> list[list[bytes]]:
    lanes, keys = fire.lanes, []
    for working_set, start, end in zip(fire.sets, lanes.indptr, lanes.indptr[1:]):
        history, size = working_set.history, working_set.pool.page_size
        is_plain = history.length == working_set.length and working_set.positions is None
        if is_plain and working_set.length % size + end - start >= size:
            keys.append(history.keys_with(lanes.ids[start:end]))
        else:
            keys.append([])
    return keys


def _first_readout(fire: Fire, lane: int) -> int:
    """The first row of the lane that is read out, counted from the lane's first; else its end."""
    spec, lanes = fire.pass_.spec, fire.lanes
    start, end = lanes.indptr[lane], lanes.indptr[lane + 1]
    if fire.pass_.epilogue is None:
        return end - start
    at = sum(spec.readout_counts[:lane])
    rows = spec.readout[at : at + spec.readout_counts[lane]]
    if lanes.row_of is not None:
        rows = [lanes.row_of[row] for row in rows if lanes.row_of[row] >= 0]
    return min(rows, default=end) - start


def begin(state: State, fire: Fire, found: Match) -> None:
    """The fire takes what was found, and announces what it will compute."""
    fire.whole_lanes = fire.lanes
    for working_set, pages in zip(fire.sets, found.pages):
        if pages:
            working_set.adopt(pages)
    if any(found.skipped):
        fire.skipped = tuple(found.skipped)
        fire.lanes = fire.lanes.without(found.skipped)
    for keys, pages in zip(found.keys, found.pages):
        for key in keys[len(pages) :]:
            state.computing.setdefault(key, fire)


def end(state: State, fire: Fire) -> None:
    """The fire is done or given up: nobody waits for what it computes."""
    for keys in fire.keys or ():
        for key in keys:
            if state.computing.get(key) is fire:
                del state.computing[key]


def record(state: State, fire: Fire) -> None:
    """The fire is committed: its plain rows are remembered, and full pages can be found."""
    end(state, fire)
    if not (state.config.prefix_cache and fire.pass_.is_plain):
        return
    if fire.skipped:
        fire.cached = _cached(fire)
    lanes: Lanes = fire.whole_lanes or fire.lanes
    ids, indptr = lanes.ids, lanes.indptr
    for working_set, start, stop in zip(fire.sets, indptr, indptr[1:]):
        history = working_set.history
        if start == stop or history.length + stop - start != working_set.length:
            continue
        if working_set.positions is not None:
            continue
        if fire.tokens_stay:
            fire.unread = fire.unread or [Unread() for _ in ids]
            history.add_unread(fire.unread[start:stop])
        else:
            history.tokens.extend(ids[start:stop])
        _enter_full_pages(working_set)


def _cached(fire: Fire) -> tuple[int, ...]:
    """By how much the leading part that came from the cache grows, for each lane."""
    grown = []
    for working_set, rows, skipped in zip(fire.sets, fire.appended, fire.skipped):
        leads = working_set.cached == working_set.length - rows  # all before came from it
        grown.append(skipped if leads else 0)
        working_set.cached += grown[-1]
    return tuple(grown) if any(grown) else ()


def tokens_arrived(fire: Fire, ids: Sequence[int]) -> None:
    """Device-made ids of a committed fire are known to the host now."""
    for unread, token in zip(fire.unread or (), ids):
        unread.id = token
    for working_set in fire.sets:
        _enter_full_pages(working_set)


def _enter_full_pages(working_set: WorkingSet) -> None:
    history = working_set.history
    if len(history.tokens) - len(history.keys) * history.page_size >= history.page_size:
        working_set.enter_pages()
