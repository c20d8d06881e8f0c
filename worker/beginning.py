"""Pages for a fire that joins a wave: all of them at once, or it waits.

So no two passes wait for each other's half. Pages that are found in the cache are taken, suspended
sets come back, and room is made where none is free.
"""

from __future__ import annotations

from worker import ports, prefix
from worker.heads import FOR_OTHERS, Heads
from worker.reclaim import FOR_PAGES, age_of, make_room
from worker.state import Fire, State, Wave

MAX_FUTILE = 4  # in a wave with hundreds that wait, looking would take longer than computing


class Beginning:
    def __init__(self, state: State, heads: Heads) -> None:
        self.state = state
        self.heads = heads
        self.waves = 0
        self.without_pages: dict[Fire, None] = {}  # ready but for pages
        self._starved: set[Fire] = set()  # … in the last wave
        self._relaxed = False
        self._futile = 0  # searches for pages in this wave that found too few

    def next_wave(self) -> None:
        self._starved = set(self.without_pages)
        self.without_pages.clear()

    def start(self, wave: Wave, ready: list[Fire], waves: int, relaxed: bool) -> None:
        """One try to fill a wave. Who found no pages in the last one may take some, before others
        are in progress."""
        self.without_pages.clear()
        self.waves, self._relaxed, self._futile = waves, relaxed, 0
        if self._starved:
            starved = [fire for fire in ready if fire in self._starved and not fire.begun]
            for fire in sorted(starved, key=lambda fire: age_of(fire.process, fire.order)):
                self.begin(wave, fire)

    def begin(self, wave: Wave, fire: Fire) -> bool:
        """Whether the fire has all of its pages now."""
        skipped = self.heads.skipped
        if len(fire.sets) == 1 and fire not in skipped and self._goes_on(wave, fire):
            return True
        found = prefix.match(self.state, fire) if fire in skipped else None
        if found is not None and found.others is not None:
            self.heads.waiting[fire.pipeline] = FOR_OTHERS
            return False
        needed = self._pages_needed(fire, found)
        if needed and not self._have_pages(fire, found, needed):
            self.without_pages[fire] = None
            self.heads.waiting[fire.pipeline] = FOR_PAGES
            return False
        self.heads.waiting.pop(fire.pipeline, None)
        skipped.pop(fire, None)
        self._wake(fire, found)
        self._take_pages(wave, fire)
        return True

    def _goes_on(self, wave: Wave, fire: Fire) -> bool:
        """Whether it begins on the page that its sequence has: what most decodes do."""
        working_set, pass_ = fire.sets[0], fire.pass_
        rows = 1 if pass_.is_single else fire.lane_rows[0]
        if pass_.ports is not None or not rows or not working_set.has_room(rows):
            return False
        pool = working_set.pool
        pool.forget(working_set.pages[working_set.length // pool.page_size])
        working_set.last_wave = wave.number
        fire.begun = True
        return True

    def _take_pages(self, wave: Wave, fire: Fire) -> None:
        fire.begun = True
        for working_set in fire.sets:
            working_set.last_wave = wave.number
        if fire.pass_.ports is not None:
            fire.spare = self.state.pool.take(ports.most_pages(fire), fire.process)
            return
        rows_of, skipped = fire.appended, fire.skipped
        for place, working_set in enumerate(fire.sets):
            copies = working_set.extend(rows_of[place], skipped[place] if skipped else 0)
            if copies:
                self.state.swap.copy(copies)

    def _pages_needed(self, fire: Fire, found: prefix.Match | None) -> int:
        """Pages that must be had for the fire to begin, those that are merely cached included."""
        skipped = found.skipped if found is not None else ()
        needed, saved = 0, {}
        for place, (working_set, rows) in enumerate(zip(fire.sets, fire.lane_rows)):
            if fire.pass_.ports is None:
                needed += working_set.pages_needed(rows, skipped[place] if skipped else 0)
            if working_set.saved is not None:
                saved.update(dict.fromkeys(working_set.absent))
        if fire.pass_.ports is not None:
            needed += ports.most_pages(fire)
        if saved:
            needed += self.state.swap.pages_needed(list(saved))
        if found is not None:
            refs = self.state.pool.refs
            needed += sum(refs[page] == 0 for pages in found.pages for page in pages)
        return needed

    def _have_pages(self, fire: Fire, found: prefix.Match | None, needed: int) -> bool:
        if self._overtakes(fire, needed - len(fire.sets)):
            return False
        pool, waiting = self.state.pool, self.heads.waiting

        def missing() -> int:
            return self._pages_needed(fire, found) - pool.num_free

        if needed <= pool.num_free:
            return True
        if self._futile >= MAX_FUTILE:
            return False
        make_room(self.state, fire, self.waves, waiting, missing, self._relaxed)
        if missing() <= 0:
            return True
        self._futile += 1
        return False

    def _wake(self, fire: Fire, found: prefix.Match | None) -> None:
        """What was found is taken, and suspended sets get their pages back."""
        pool = self.state.pool
        pinned = [page for pages in found.pages for page in pages] if found is not None else []
        pool.share(pinned, fire.process)  # so that nothing below evicts them
        for working_set in fire.sets:
            if working_set.saved is not None:
                working_set.restore()
                working_set.restored_wave = self.waves
        if found is not None:
            prefix.begin(self.state, fire, found)
            pool.release(pinned)

    def _overtakes(self, fire: Fire, pages_beyond: int) -> bool:
        """Whether it would take more than a page for each lane from an older fire that waits."""
        if self._relaxed or pages_beyond <= 0:
            return False
        age = age_of(fire.process, fire.order)
        return any(age_of(other.process, other.order) < age for other in self.without_pages)
