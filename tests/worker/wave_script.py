"""Runs a scheduling script without torch, and writes down every wave. `>` begins a line of it.

    > engine pages 16, budget 8, window 3      pages of 4 slots; first line
                                               passes 4: over a process, until it goes first
    > a submit 12                              12 host-known rows on working set a, of a's own
    > a prompt 12                              the same, with ids that all such prompts begin with
    > a frame 2                                two decodes as one frame
    > a priority 1                             of its process, before anything else of a
    > pace 4                                   rows of prompts in a wave with decodes
    > a decode                                 one row from a's channel, put by the pass before it
    > a run 5 credits 2 | a credit 1 | a stop 2    (a stop names fires of the run from 0)
    > b fork a                                 in the order of a's pipeline; b is in a's process
    > a wants mask | a put mask                the next submit needs a cell of the host
    > a drop | a end | a park
    > waves 3                                  up to three waves

A name is a working set and a pipeline; it starts a process of its own unless it was forked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ipc import messages as m
from ipc.eta import encode as eta
from ipc.eta.graph import Builder
from ipc.types import BoundProgram, DType, Limits, ModelInfo, Operand, PassSpec, TensorType
from worker import commands, settle
from worker.config import Config
from worker.definitions import Lanes
from worker.pages import Move, PagePool
from worker.scheduler import Scheduler
from worker.state import Process, Segment, State, Wave

PAGE_SIZE = 4
UNSEEN = (Move.DROP, Move.CLEAR)  # moves that the traces leave out
MODEL = ModelInfo("none", "none", "", 64, 64, 1, 8, 256, "float32")
TOKEN, MASK = TensorType(DType.i32, (1,)), TensorType(DType.bool_, (4,))


class NoRings:
    """Counts are all that scheduling needs."""

    def allocate(self, cell, count):
        return 0

    def free(self, cell, base, count):
        pass

    def write(self, cell, index, data):
        pass

    def read(self, cell, indices):
        return [b""] * len(indices)


def _program(takes_mask: bool):
    b = Builder()
    logits = b.add("output", (), {"lane": 0, "name": "logits"})
    if takes_mask:
        b.take(1)
    token = b.add("reduce_argmax", (logits,))
    b.put(0, b.add("reshape", (token,), {"shape": (1,)}))
    return eta.encode(b.finish().program)


PLAIN, MASKED = _program(False), _program(True)
_SLOTS = {PLAIN: ("token",), MASKED: ("mask", "token")}


@dataclass
class Lane:
    """A name of the script."""

    process: Process
    number: int
    passes: int = 0
    seq: int = 0
    first_seq: int = 0
    wants_mask: bool = False
    channels: dict[str, int] = field(default_factory=dict)


class Script:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lanes: dict[str, Lane] = {}
        self.state: State
        self.scheduler: Scheduler

    def run(self, text: str) -> str:
        """The script's lines, each followed by what happened."""
        for line in text.splitlines():
            if line.startswith(">"):
                self.lines.append(line)
                self._line(line[1:].split())
            elif not line.strip() or line.startswith("#"):
                self.lines.append(line)
        return "\n".join(self.lines) + "\n"

    def _line(self, words: list[str]) -> None:
        if words[0] == "engine":
            given = {k: int(v) for k, v in re.findall(r"(\w+) (\d+)", " ".join(words[1:]))}
            config = Config(
                row_budget=given["budget"], short_rows=given.get("short", 4), min_chunk=2,
                decode_rows=given.get("decode", 2), run_ahead_window=given["window"],
                swap_pages=given.get("swap", 1000), tenure_waves=4, idle_waves=4, min_shared=4,
                passed_over=given.get("passes", 32),
            )  # fmt: skip
            pool = PagePool(given["pages"] + 1, PAGE_SIZE)
            self.state = State(MODEL, pool, NoRings(), config)
            self.scheduler = Scheduler(self.state)
        elif words[0] == "pace":
            self.scheduler.prompt_rows = lambda decodes: int(words[1])
        elif words[0] == "waves":
            for _ in range(int(words[1])):
                if not self._wave():
                    break
        else:
            getattr(self, "_" + words[1])(words[0], *words[2:])
        self.state.check_integrity()
        for events in self.state.events.values():
            for event in events:
                if isinstance(event, m.Failed):
                    self.lines.append(f"failed: {event.failure.message}")
        self.state.events.clear()

    # ---- verbs

    def _lane(self, name: str) -> Lane:
        if name not in self.lanes:
            number = len(self.lanes)
            process = self.state.processes[number] = Process(number, Limits())
            self.lanes[name] = Lane(process, number)
            self._say(name, m.DefineProgram(PLAIN), m.DefineProgram(MASKED))
            self._say(name, m.OpenWorkingSet(number))
            self._open(name)
        return self.lanes[name]

    def _open(self, name: str) -> None:
        lane = self.lanes[name]
        self._say(name, m.OpenPipeline(lane.number))
        for place, (kind, cell) in enumerate((("token", TOKEN), ("mask", MASK))):
            lane.channels[kind] = 2 * lane.number + place
            self._say(name, m.DefineChannel(lane.channels[kind], cell, 1))

    def _say(self, name: str, *said: m.Command) -> None:
        for command in said:
            commands.handle(self.state, self.lanes[name].process, command)

    def _pass(self, name: str, rows: int | None, token: int | None = None) -> int:
        """Defines a pass of host-known rows, or one that decodes."""
        lane = self._lane(name)
        code = MASKED if lane.wants_mask else PLAIN
        lane.wants_mask = False
        slots = tuple(lane.channels[kind] for kind in _SLOTS[code])
        bound = BoundProgram(eta.program_id(code), slots, b"")
        tokens = Operand(channel=lane.channels["token"])
        if rows is not None:
            tokens = Operand((lane.number + 1 if token is None else token,) * rows)
        number, rows = lane.number * 1000 + lane.passes, rows or 1
        lane.passes += 1
        # A prompt's token would stay in the ring for the next prompt: only the first one has it.
        epilogue = bound if tokens.is_channel or lane.passes == 1 else None
        readout = (rows - 1,) if epilogue else ()
        self._say(
            name,
            m.DefinePass(
                PassSpec(
                    number, rows, tokens, (0, rows), (lane.number,), readout, (len(readout),),
                    None, epilogue,
                )  # fmt: skip
            ),
        )
        return number

    def _submit(self, name: str, rows: str) -> None:
        self._submit_pass(name, self._pass(name, int(rows)))

    def _prompt(self, name: str, rows: str) -> None:
        self._submit_pass(name, self._pass(name, int(rows), token=0))

    def _decode(self, name: str) -> None:
        self._submit_pass(name, self._pass(name, None))

    def _frame(self, name: str, entries: str) -> None:
        for entry in range(int(entries)):
            self._submit_pass(name, self._pass(name, None), follows=entry > 0)

    def _submit_pass(self, name: str, number: int, follows: bool = False) -> None:
        lane = self.lanes[name]
        self._say(name, m.Submit(lane.number, number, lane.seq, follows))
        lane.seq += 1

    def _priority(self, name: str, priority: str) -> None:
        self._lane(name).process.priority = int(priority)

    def _park(self, name: str) -> None:
        self._say(name, m.Park(self.lanes[name].number))

    def _run(self, name: str, budget: str, _: str, credits: str) -> None:
        number, lane = self._pass(name, None), self.lanes[name]
        lane.first_seq = lane.seq
        self._say(name, m.RunAhead(lane.number, number, lane.seq, int(budget), int(credits)))
        lane.seq += int(budget)

    def _credit(self, name: str, fires: str) -> None:
        self._say(name, m.Credit(self.lanes[name].number, int(fires)))

    def _stop(self, name: str, fire: str) -> None:
        lane = self.lanes[name]
        self._say(name, m.Stop(lane.number, lane.first_seq + int(fire)))

    def _fork(self, name: str, parent: str) -> None:
        origin = self.lanes[parent]
        number = len(self.lanes)
        self.lanes[name] = Lane(origin.process, number)
        self._say(name, m.Fork(origin.number, number, origin.number))
        self._open(name)

    def _wants(self, name: str, _: str) -> None:
        self._lane(name).wants_mask = True

    def _put(self, name: str, kind: str) -> None:
        cell = bytes(4) if kind == "mask" else (1).to_bytes(4, "little")
        self._say(name, m.Put(self._lane(name).channels[kind], cell))

    def _drop(self, name: str) -> None:
        self._say(name, m.DropWorkingSet(self.lanes[name].number))

    def _end(self, name: str) -> None:
        process = self.lanes[name].process
        settle.release_process(self.state, process)
        del self.state.processes[process.number]

    # ---- waves

    def _wave(self) -> bool:
        wave = self.scheduler.next_wave()
        names = {(lane.process, lane.number): name for name, lane in self.lanes.items()}
        waiting = [
            f"{names[pipeline.process, pipeline.number]} {reason}"
            for pipeline, reason in self.scheduler.waiting.items()
        ]
        if wave is None:
            free = f"free {self.state.pool.num_free}"
            self.lines.append("  ".join(["no wave", free, *waiting]))
            return False
        parts = []
        for segment in wave.segments:
            fire = segment.fire
            start = fire.sets[0].length + sum(fire.skipped)
            rows = f"{start + segment.start}:{start + segment.stop}"
            parts.append(f"{names[fire.process, fire.pipeline.number]}[{rows}]")
        self._finish(wave)
        moves = [_in_words(*move) for move in wave.moves if move[0] not in UNSEEN]
        free = f"free {self.state.pool.num_free}"
        text = "  ".join([" ".join(parts), *moves, free, *waiting])
        self.lines.append(f"wave {wave.number}  {text}")
        return True

    def _finish(self, wave: Wave) -> None:
        for segment in wave.segments:
            self._finish_segment(segment)

    def _finish_segment(self, segment: Segment) -> None:
        fire = segment.fire
        fire.rows_done = segment.stop
        if segment.is_last:
            if fire.lanes is None:
                fire.lanes = Lanes([0] * fire.num_rows, fire.pass_.spec.indptr)
            settle.commit(self.state, fire)


def _in_words(kind: Move, page: int, slot: int) -> str:
    return f"copies {page}->{slot}" if kind is Move.COPY else f"{kind.value} {page}"
