"""Which fires form the next wave: a pure function of counts. No tensors, no clocks.

A fire is ready when it heads its pipeline, every channel whose front it needs holds a cell, every
channel it appends to has room, its working sets exist, and nobody is computing the same prefix.

    decodes       (few rows) first, in turn over processes and their pipelines
    short fires   (small prompts) likewise
    long fires    what is left of the rows, oldest first, cut into chunks

Higher priorities go before lower ones, and a frame's next entry before all others. While there are
decodes, prompts get `prompt_rows` a wave: so that decodes go on at their pace.
"""

from __future__ import annotations

from collections.abc import Callable

from ipc.errors import ErrorCode, Failure
from worker import ports, prefix, settle
from worker.reclaim import FOR_PAGES, age_of, make_room
from worker.state import (
    CellChange,
    Fire,
    ForkPoint,
    Lanes,
    Pipeline,
    Process,
    Run,
    Segment,
    State,
    Wave,
)


class Scheduler:
    def __init__(self, state: State) -> None:
        config = state.config
        self.state = state
        self.row_budget = config.row_budget
        self.short_rows = min(config.short_rows, config.row_budget // 2)
        self.decode_rows = min(config.decode_rows, self.short_rows)
        self.long_share = config.row_budget // 4  # of a wave, while a long fire is ready
        self.min_chunk = max(min(config.min_chunk, self.long_share), 1)
        # Rows of prompts in a wave with so many decodes; the loop knows what they cost.
        self.prompt_rows: Callable[[int], int] = lambda decodes: config.row_budget
        self.waves = 0
        self.waiting: dict[Pipeline, str] = {}  # why the head of a pipeline was not ready
        self.without_pages: dict[Fire, None] = {}  # ready but for pages
        self._starved: set[Fire] = set()  # … in the last wave
        self._relaxed = False
        self._futile = 0  # searches for pages in this wave that found too few
        self._skipped: dict[Fire, int] = {}  # rows that the cache seems to have

    def next_wave(self) -> Wave | None:
        """The next wave, with its pages taken; None when nothing is ready."""
        self.waiting.clear()
        self._starved = set(self.without_pages)
        self.without_pages.clear()
        self._skipped.clear()
        self._advance_heads()
        ready = self._ready()
        if not ready:
            return None
        wave = self._fill(ready, relaxed=False)
        if not wave.segments:
            # Nothing runs that could give pages back soon: the oldest first, whatever it takes.
            ready.sort(key=lambda fire: age_of(fire.process, fire.order))
            wave = self._fill(ready, relaxed=True)
        if not wave.segments:
            return None
        self.waves += 1
        wave.moves = self.state.swap.take_moves()
        if len(wave.segments) < len(ready):
            self._served_go_last(wave)
        return wave

    def exhausted(self) -> Fire | None:
        """The fire to give up when no wave is possible for want of pages: the youngest of them.

        None while somebody may still give pages back: a process that holds some and waits for none.
        """
        if not self.without_pages:
            return None
        waiting = {fire.process for fire in self.without_pages}
        for process in self.state.processes.values():
            if process.pages and process not in waiting:
                return None
        return max(self.without_pages, key=lambda fire: age_of(fire.process, fire.order))

    # ---- what heads the pipelines

    def _advance_heads(self) -> None:
        """Forks and changes of cells whose turn has come, until none is left."""
        changed = True
        while changed:
            changed = False
            for pipeline in self._pipelines_to_advance():
                changed |= self._advance_head(pipeline)

    def _pipelines_to_advance(self) -> list[Pipeline]:
        return [
            pipeline
            for process in self.state.active
            for pipeline in process.active
            if pipeline.queue and type(pipeline.queue[0]) in (ForkPoint, CellChange)
        ]

    def _advance_head(self, pipeline: Pipeline) -> bool:
        process, changed = pipeline.process, False
        while pipeline.queue:
            head = pipeline.queue[0]
            if isinstance(head, ForkPoint):
                if head.parent.fork_point is not None:
                    break  # the parent itself is still to be made, on another pipeline
                pipeline.queue.popleft()
                settle.apply_fork(process, head)
            elif isinstance(head, CellChange):
                pipeline.queue.popleft()
                settle.apply_change(self.state, process, head)
            else:
                break
            changed = True
        if changed:
            settle.leave_if_idle(self.state, pipeline)
        return changed

    def _ready(self) -> list[Fire]:
        """Ready fires: the first of each process, then the second of each, …"""
        each = [self._ready_of(process) for process in list(self.state.active)]
        each = [fires for fires in each if fires]
        if len(each) == 1:
            ready = each[0]
        else:
            ready = []
            for place in range(max(map(len, each), default=0)):
                ready += [fires[place] for fires in each if place < len(fires)]
        if any(fire.follows or fire.process.priority for fire in ready):
            ready.sort(key=lambda fire: (-fire.process.priority, not fire.follows))
        return ready

    def _ready_of(self, process: Process) -> list[Fire]:
        ready = []
        for pipeline in list(process.active):
            fire = self._head_fire(pipeline)
            if fire is not None and (fire.begun or self._is_ready(fire)):
                ready.append(fire)
        return ready

    def _head_fire(self, pipeline: Pipeline) -> Fire | None:
        head = pipeline.queue[0] if pipeline.queue else None
        if isinstance(head, Fire):
            return head
        if not isinstance(head, Run):
            self.waiting[pipeline] = "waits for its fork"
            return None
        if head.next_fire is None:
            if not head.may_start:
                self.waiting[pipeline] = "waits for credit"
                return None
            seq = head.first_seq + head.started
            head.next_fire = Fire(
                head.process, pipeline, head.pass_, seq, head.sets, head.order, head,
                head.pass_.lanes,
            )  # fmt: skip
        return head.next_fire

    def _is_ready(self, fire: Fire) -> bool:
        reason = self._lacks(fire)
        if reason:
            self.waiting[fire.pipeline] = reason
            return False
        failure = self._cannot_ever(fire)
        if failure is not None:
            settle.fail(self.state, fire, failure)
            return False
        if fire.lanes is None:
            self._read_host_tokens(fire)
        if prefix.can_match(self.state, fire):
            found = prefix.match(self.state, fire)
            if found.others is not None:
                self.waiting[fire.pipeline] = FOR_OTHERS
                return False
            self._skipped[fire] = sum(found.skipped)
        return True

    def _lacks(self, fire: Fire) -> str:
        for use in fire.pass_.uses:
            channel = use.channel
            held = channel.written - channel.taken
            if use.needs_front and held == 0:
                return f"waits for a cell of channel {channel.number}"
            popped = use.pops or int(use.pops_if_present and held > 0)
            if use.appends and held - popped >= channel.capacity:
                return f"waits for room in channel {channel.number}"
        for working_set in fire.sets:
            if working_set.fork_point is not None:
                return "waits for a fork"
            if working_set.forks and any(
                fork.pipeline is not fire.pipeline for fork in working_set.forks
            ):
                return "waits for a fork of its working set"
        return ""

    def _read_host_tokens(self, fire: Fire) -> None:
        """Ids that the host has put, when they may fill a page: so that they can be looked up."""
        channel = fire.pass_.tokens
        if channel.fed_by_device or fire.num_rows < self.state.pool.page_size:
            return
        (cell,) = self.state.rings.read(channel.cell, [channel.front])
        ids = memoryview(cell).cast("i")
        if -1 <= min(ids) and max(ids) < self.state.model.output_vocab_size:
            fire.lanes = Lanes(ids, fire.pass_.spec.indptr)

    def _cannot_ever(self, fire: Fire) -> Failure | None:
        """Why the fire fails whatever happens: context, or more pages than there are."""
        context, needed = self.state.model.context_length, 0
        is_exact = fire.lanes is not None or fire.pass_.is_exact
        is_placed = fire.pass_.ports is not None  # then its positions are not those of an append
        for working_set, rows in zip(fire.sets, fire.lane_rows):
            end = working_set.length + rows
            is_appended = not is_placed and working_set.positions is None
            if is_exact and is_appended and rows and end > context:
                return context_failure(end, context)
            if not working_set.has_room(rows):
                needed += working_set.pages_needed(rows)
        if is_placed:
            needed = ports.most_pages(fire)
        if not needed:
            return None
        own = {page for working_set in fire.sets for page in working_set.pages}
        saved = {one for working_set in fire.sets for one in working_set.saved or ()}
        total, capacity = needed + len(own) + len(saved), self.state.pool.capacity
        if total > capacity:
            message = f"the pass needs {total} pages at once; the engine has {capacity}"
            return Failure(ErrorCode.OUT_OF_MEMORY, message)
        limit = fire.process.limits.pages
        if fire.process.pages + needed > limit:
            self.state.recharge(fire.process)
        if fire.process.pages + needed > limit:
            return Failure(ErrorCode.LIMIT, f"the process would hold more than {limit} pages")
        return None

    # ---- rows and pages

    def _fill(self, ready: list[Fire], relaxed: bool) -> Wave:
        self.without_pages.clear()
        self._relaxed, self._futile = relaxed, 0
        wave = Wave(self.waves + 1, [], [])
        self._begin_starved(wave, ready)
        decodes, prompts = [], []
        for fire in ready:
            is_decode = self._remaining(fire) <= self.decode_rows and not fire.rows_done
            (decodes if is_decode else prompts).append(fire)
        left = self.row_budget
        pace = self._pace(len(decodes), len(prompts)) if decodes and prompts else left
        short, long = self._split(prompts, self.short_rows)
        reserve = min(self.long_share, pace) if long else 0
        for fire in decodes:
            if left - reserve >= self._remaining(fire):
                left -= self._add(wave, fire, self.decode_rows)
        # Short prompts keep to no pace: each holds the others up once, and then decodes with them.
        self._add_prompts(wave, short, long, left, reserve, pace if wave.segments else left)
        return wave

    def _pace(self, num_decodes: int, num_prompts: int) -> int:
        """Rows of prompts beside decodes: more where more wait for their first token than decode."""
        return int(self.prompt_rows(num_decodes) * max(1.0, num_prompts / num_decodes))

    def _split(self, prompts: list[Fire], most: int) -> tuple[list[Fire], list[Fire]]:
        """Those that go uncut, and those that are cut or have been."""
        short, long = [], []
        for fire in prompts:
            is_short = self._remaining(fire) <= most and not fire.rows_done
            (short if is_short else long).append(fire)
        return short, long

    def _add_prompts(
        self, wave: Wave, short: list[Fire], long: list[Fire], left: int, reserve: int, pace: int
    ) -> None:
        """Fills `left` rows; `reserve` of them are for the long ones, which get `pace` at most."""
        for fire in short:
            if left - reserve >= self._remaining(fire):
                left -= self._add(wave, fire, self.short_rows)
        left = min(left, pace)
        for fire in sorted(long, key=_long_order):
            if left >= self.min_chunk:
                left -= self._add(wave, fire, left)

    def _begin_starved(self, wave: Wave, ready: list[Fire]) -> None:
        """Who found no pages in the last wave may take some, before others are in progress."""
        starved = [fire for fire in ready if fire in self._starved and not fire.begun]
        for fire in sorted(starved, key=lambda fire: age_of(fire.process, fire.order)):
            self._begin(wave, fire)

    def _remaining(self, fire: Fire) -> int:
        return fire.num_rows - fire.rows_done - self._skipped.get(fire, 0)

    def _add(self, wave: Wave, fire: Fire, most: int) -> int:
        """Puts up to `most` rows of the fire into the wave; gives the rows that this takes."""
        if not fire.begun and not self._begin(wave, fire):
            return 0
        rows = fire.num_rows - fire.rows_done
        if fire.pass_.ports is None:  # else its rows may attend each other: it is not cut
            rows = min(rows, most)
        wave.segments.append(Segment(fire, fire.rows_done, fire.rows_done + rows))
        return rows

    def _begin(self, wave: Wave, fire: Fire) -> bool:
        """Pages for the whole fire at once, so that no two passes wait for each other's half."""
        if len(fire.sets) == 1 and fire not in self._skipped and self._goes_on(wave, fire):
            return True
        found = prefix.match(self.state, fire) if fire in self._skipped else None
        if found is not None and found.others is not None:
            self.waiting[fire.pipeline] = FOR_OTHERS
            return False
        needed = self._pages_needed(fire, found)
        if needed and not self._have_pages(fire, found, needed):
            self.without_pages[fire] = None
            self.waiting[fire.pipeline] = FOR_PAGES
            return False
        self.waiting.pop(fire.pipeline, None)
        self._skipped.pop(fire, None)
        self._wake(fire, found)
        fire.begun = True
        if fire.pass_.ports is not None:
            fire.spare = self.state.pool.take(ports.most_pages(fire), fire.process)
            for working_set in fire.sets:
                working_set.last_wave = wave.number
            return True
        rows_of, skipped = fire.appended, fire.skipped
        for place, working_set in enumerate(fire.sets):
            working_set.last_wave = wave.number
            copies = working_set.extend(rows_of[place], skipped[place] if skipped else 0)
            if copies:
                self.state.swap.copy(copies)
        return True

    def _goes_on(self, wave: Wave, fire: Fire) -> bool:
        """Whether it begins on the page that its sequence has: what most decodes do."""
        (working_set,), (rows,) = fire.sets, fire.lane_rows
        if fire.pass_.ports is not None or not rows or not working_set.has_room(rows):
            return False
        pool = working_set.pool
        pool.forget(working_set.pages[working_set.length // pool.page_size])
        working_set.last_wave = wave.number
        fire.begun = True
        return True

    def _pages_needed(self, fire: Fire, found: prefix.Match | None) -> int:
        """Pages that must be had for the fire to begin, those that are merely cached included."""
        skipped = found.skipped if found is not None else ()
        needed, saved = 0, {}
        for place, (working_set, rows) in enumerate(zip(fire.sets, fire.lane_rows)):
            if fire.pass_.ports is None:
                needed += working_set.pages_needed(rows, skipped[place] if skipped else 0)
            if working_set.saved is not None:
                saved.update(dict.fromkeys(working_set.saved))
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
        pool = self.state.pool

        def missing() -> int:
            return self._pages_needed(fire, found) - pool.num_free

        if needed <= pool.num_free:
            return True
        if self._futile >= MAX_FUTILE:
            return False
        make_room(self.state, fire, self.waves, self.waiting, missing, self._relaxed)
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

    def _served_go_last(self, wave: Wave) -> None:
        for segment in wave.segments:
            process, pipeline = segment.fire.process, segment.fire.pipeline
            process.active[pipeline] = process.active.pop(pipeline)
            self.state.active[process] = self.state.active.pop(process)


MAX_FUTILE = 4  # in a wave with hundreds that wait, looking would take longer than computing
FOR_OTHERS = "waits for an equal prompt"


def _long_order(fire: Fire) -> tuple:
    return not fire.begun, -fire.process.priority, fire.order


def context_failure(end: int, context: int) -> Failure:
    return Failure(
        ErrorCode.CONTEXT_LENGTH,
        f"the working set would have {end} rows; the model's context is {context}",
    )
