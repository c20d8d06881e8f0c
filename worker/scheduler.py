"""Which fires form the next wave: a pure function of counts. No tensors, no clocks.

`heads.py` says which fires are ready, `beginning.py` gets them their pages. Of the ready ones:

    decodes       (few rows) first, in turn over processes and their pipelines
    short fires   (small prompts) likewise
    long fires    what is left of the rows, oldest first, cut into chunks

Higher priorities go before lower ones, and a frame's next entry before its equals. Nobody starves:
a process that `passed_over` waves went without comes first, with one fire. Fires whose stages are
heavy share few waves, and light ones have some to themselves in between. While there are decodes,
prompts get `prompt_rows` a wave: so that decodes go on at their pace.
"""

from __future__ import annotations

from collections.abc import Callable

from worker.beginning import Beginning
from worker.heads import Heads
from worker.ports import may_be_cut
from worker.reclaim import age_of
from worker.state import Fire, Pipeline, Process, Segment, State, Wave


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
        self._passed_over: dict[Process, int] = {}  # since which wave
        self._heavy_from = 0  # heavy fires rest until this wave
        self._late: set[Fire] = set()  # fires that go first for that
        self._heads = Heads(state)
        self._beginning = Beginning(state, self._heads)

    @property
    def waiting(self) -> dict[Pipeline, str]:
        """Why the heads of pipelines were not in the last wave."""
        return self._heads.waiting

    @property
    def without_pages(self) -> dict[Fire, None]:
        """Fires that lacked pages alone."""
        return self._beginning.without_pages

    def next_wave(self) -> Wave | None:
        """The next wave, with its pages taken; None when nothing is ready."""
        self._beginning.next_wave()
        ready = self._heads.look()
        if not ready:
            return None
        if any(fire.follows or fire.process.priority for fire in ready):
            late = self._late = self._find_late(ready)
            ready.sort(key=lambda f: (f not in late, -f.process.priority, not f.follows))
        wave = self._fill(self._bounded_work(ready), relaxed=False)
        if not wave.segments:
            # Nothing runs that could give pages back soon: the oldest first, whatever it takes.
            ready.sort(key=lambda fire: age_of(fire.process, fire.order))
            wave = self._fill(self._bounded_work(ready, has_rest=False), relaxed=True)
        if not wave.segments:
            return None
        self.waves += 1
        self._rest_after(wave)
        wave.moves = self.state.swap.take_moves()
        if len(wave.segments) < len(ready):
            self._served_go_last(wave)
            self._note_passed_over(wave, ready)
        elif self._passed_over:
            self._passed_over.clear()
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

    # ---- work of stages: one process's may not hold up the others' next tokens for long

    def _bounded_work(self, ready: list[Fire], has_rest: bool = True) -> list[Fire]:
        """Those of the ready fires whose stages one wave may take; always some."""
        config = self.state.config
        if sum(fire.pass_.steps for fire in ready) <= config.light_steps:
            return ready
        is_light = [fire.pass_.steps <= config.light_steps for fire in ready]
        rests = has_rest and self.waves + 1 < self._heavy_from and any(is_light)
        taken, heavy = [], 0
        spent: dict[Process, int] = {}
        for fire, light in zip(ready, is_light):
            steps, own = fire.pass_.steps, spent.get(fire.process, 0)
            if own and own + steps > config.process_steps:
                continue
            if not light:
                if rests or (heavy and heavy + steps > config.heavy_steps):
                    continue
                heavy += steps
            spent[fire.process] = own + steps
            taken.append(fire)
        return taken

    def _rest_after(self, wave: Wave) -> None:
        """After heavy fires come as many waves without as they may have cost."""
        most = self.state.config.light_steps
        steps = (segment.fire.pass_.steps for segment in wave.segments)
        heavy = sum(count for count in steps if count > most)
        if heavy:
            self._heavy_from = wave.number + 1 + heavy // most

    # ---- rows

    def _fill(self, ready: list[Fire], relaxed: bool) -> Wave:
        wave = Wave(self.waves + 1, [], [])
        self._beginning.start(wave, ready, self.waves, relaxed)
        decodes, prompts = self._decodes_and_prompts(ready)
        left = self.row_budget
        pace = self._pace(len(decodes), len(prompts)) if decodes and prompts else left
        short, long = self._split(prompts, self.short_rows)
        reserve = min(self.long_share, pace) if long else 0
        for fire in decodes:
            if fire.pass_.is_single:
                if left > reserve and (fire.begun or self._beginning.begin(wave, fire)):
                    wave.segments.append(Segment(fire, 0, 1))
                    left -= 1
            elif left - reserve >= self._remaining(fire):
                left -= self._add(wave, fire, self.decode_rows)
        # Short prompts keep to no pace: each holds the others up once, and then decodes with them.
        self._add_prompts(wave, short, long, left, reserve, pace if wave.segments else left)
        return wave

    def _decodes_and_prompts(self, ready: list[Fire]) -> tuple[list[Fire], list[Fire]]:
        decodes, prompts, most = [], [], self.decode_rows
        for fire in ready:
            if fire.pass_.is_single or (self._remaining(fire) <= most and not fire.rows_done):
                decodes.append(fire)
            else:
                prompts.append(fire)
        return decodes, prompts

    def _pace(self, num_decodes: int, num_prompts: int) -> int:
        """Rows of prompts beside decodes: more where more wait to start than decode."""
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
        for fire in sorted(long, key=self._long_order):
            if left >= self.min_chunk:
                left -= self._add(wave, fire, left)

    def _remaining(self, fire: Fire) -> int:
        return fire.num_rows - fire.rows_done - self._heads.skipped.get(fire, 0)

    def _add(self, wave: Wave, fire: Fire, most: int) -> int:
        """Puts up to `most` rows of the fire into the wave; gives the rows that this takes."""
        if not fire.begun and not self._beginning.begin(wave, fire):
            return 0
        start, rows = fire.rows_done, fire.num_rows - fire.rows_done
        cut = start + min(rows, most)
        if may_be_cut(fire):
            wave.segments.append(Segment(fire, start, cut))
            return cut - start
        # Its rows may attend each other. Only when they are placed is it known whether they do.
        wave.segments.append(Segment(fire, start, start + rows, cut))
        return rows

    def _served_go_last(self, wave: Wave) -> None:
        for segment in wave.segments:
            process, pipeline = segment.fire.process, segment.fire.pipeline
            process.active[pipeline] = process.active.pop(pipeline)
            self.state.active[process] = self.state.active.pop(process)

    def _note_passed_over(self, wave: Wave, ready: list[Fire]) -> None:
        """Remembers since which wave the processes wait that are ready, and not in this one."""
        served = {segment.fire.process for segment in wave.segments}
        waiting = dict.fromkeys(fire.process for fire in ready if fire.process not in served)
        since = self._passed_over
        self._passed_over = {process: since.get(process, wave.number) for process in waiting}

    def _find_late(self, ready: list[Fire]) -> set[Fire]:
        """The first fires of processes that have been passed over for long."""
        most = self.state.config.passed_over
        late = {p for p, since in self._passed_over.items() if self.waves + 1 - since >= most}
        first: dict[Process, Fire] = {}
        for fire in ready if late else ():
            if fire.process in late:
                first.setdefault(fire.process, fire)
        return set(first.values())

    def _long_order(self, fire: Fire) -> tuple:
        return fire not in self._late, not fire.begun, -fire.process.priority, fire.order
