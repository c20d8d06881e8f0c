"""Drives a whole engine on the tiny model, as the hub and its inferlets would. No sockets."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from ipc import codec
from ipc import messages as m
from ipc.eta import encode as eta
from ipc.eta.graph import Builder, Program
from ipc.transport import local_pair
from ipc.types import BoundProgram, DType, Limits, Operand, PassSpec, TensorType
from worker.config import Config
from worker.loop import Engine
from worker.model import load

torch.set_num_threads(1)  # the tiny model has nothing to share out

PAGE_SIZE = 4
CONFIG = Config(patience_floor=0.0, patience_share=0.0, memory_grace=0.0, stats_interval=1e9)
TOKEN = TensorType(DType.i32, (1,))


class Bench:
    """One engine; `client()` gives inferlets. Integrity is checked after every step."""

    def __init__(
        self, num_pages: int = 256, config: Config = CONFIG, context: int = 1024, **changes: float
    ) -> None:
        model = load("tiny", name="tiny", page_size=PAGE_SIZE, max_context=context)
        model.allocate(num_pages)
        self.hub, worker_end = local_pair()
        self.engine = Engine(model, num_pages, worker_end, replace(config, **changes))
        self.clients: dict[int, Client] = {}
        self.reports: list[m.WorkerReport] = []
        self._numbers = count(1)

    @property
    def state(self):
        return self.engine.state

    def client(self, limits: Limits | None = None, salt: str = "", priority: int = 0) -> Client:
        client = Client(self, next(self._numbers))
        self.clients[client.number] = client
        started = m.ProcessStarted(client.number, limits or Limits(), salt, priority)
        self.hub.send([started], [])
        return client

    def step(self) -> bool:
        """What the inferlets have said goes out, one step, and its events come in."""
        batches = []
        for client in self.clients.values():
            if client.commands:
                batches.append((client.number, codec.encode_commands(client.commands)))
                client.commands = []
        if batches:
            self.hub.send([], batches)
        busy = self.engine.step()
        self.state.check_integrity()
        while (message := self.hub.receive()) is not None:
            self.reports += message[0]
            for number, data in message[1]:
                self.clients[number].events += codec.decode_events(data)
        return busy

    def settle(self, most: int = 500) -> int:
        """Steps until nothing happens any more; how many waves that took."""
        before = self.engine.scheduler.waves
        for _ in range(most):
            if not self.step() and not any(c.commands for c in self.clients.values()):
                return self.engine.scheduler.waves - before
        raise AssertionError(f"still busy after {most} steps")


@dataclass
class Client:
    """One inferlet: numbers its handles, remembers its events."""

    bench: Bench
    number: int
    commands: list[m.Command] = field(default_factory=list)
    events: list[m.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = {kind: count() for kind in ("channel", "pass", "set", "pipeline")}
        self._seqs: dict[int, int] = {}
        self._programs: set[bytes] = set()

    def say(self, *commands: m.Command) -> None:
        self.commands += commands

    def channel(self, cell: TensorType = TOKEN, capacity: int = 1, *seeds: Sequence[int]) -> int:
        number = next(self._numbers["channel"])
        self.say(m.DefineChannel(number, cell, capacity))
        for seed in seeds:
            self.put(number, seed)
        return number

    def put(self, channel: int, values: Sequence[int]) -> None:
        self.say(m.Put(channel, array("i", values).tobytes()))

    def working_set(self) -> int:
        number = next(self._numbers["set"])
        self.say(m.OpenWorkingSet(number))
        return number

    def fork(self, parent: int, pipeline: int) -> int:
        number = next(self._numbers["set"])
        self.say(m.Fork(parent, number, pipeline))
        return number

    def pipeline(self) -> int:
        number = next(self._numbers["pipeline"])
        self.say(m.OpenPipeline(number))
        self._seqs[number] = 0
        return number

    def stage(self, program: Program, *channels: int, constants: bytes = b"") -> BoundProgram:
        code = eta.encode(program)
        number = eta.program_id(code)
        if number not in self._programs:
            self._programs.add(number)
            self.say(m.DefineProgram(code))
        return BoundProgram(number, channels, constants)

    def define_pass(
        self,
        tokens: Sequence[int] | int,
        sets: Sequence[int],
        *,
        num_rows: int | None = None,
        indptr: Sequence[int] | None = None,
        readout: Sequence[Sequence[int]] | None = None,
        prologue: BoundProgram | None = None,
        epilogue: BoundProgram | None = None,
        has_results: bool = True,
    ) -> int:
        """`tokens`: ids, or the channel that feeds them. `readout`: rows for each lane."""
        if isinstance(tokens, int):
            operand, rows = Operand(channel=tokens), num_rows or 1
        else:
            operand, rows = Operand(tuple(tokens)), len(tokens)
        indptr = tuple(indptr or (0, rows))
        if readout is None:
            readout = [[end - 1] for end in indptr[1:]]
        number = next(self._numbers["pass"])
        spec = PassSpec(
            number, rows, operand, indptr, tuple(sets), tuple(r for lane in readout for r in lane),
            tuple(len(lane) for lane in readout), prologue, epilogue,
            has_results and epilogue is not None,
        )  # fmt: skip
        self.say(m.DefinePass(spec))
        return number

    def submit(self, pipeline: int, pass_id: int) -> int:
        seq = self._take(pipeline, 1)
        self.say(m.Submit(pipeline, pass_id, seq))
        return seq

    def run(self, pipeline: int, pass_id: int, budget: int, credits: int = 6) -> int:
        seq = self._take(pipeline, budget)
        self.say(m.RunAhead(pipeline, pass_id, seq, budget, credits))
        return seq

    def _take(self, pipeline: int, seqs: int) -> int:
        first = self._seqs[pipeline]
        self._seqs[pipeline] += seqs
        return first

    # ---- what came back

    def fired(self, pipeline: int | None = None) -> list[m.Fired]:
        return [
            event
            for event in self.events
            if isinstance(event, m.Fired) and pipeline in (None, event.pipeline)
        ]

    def tokens(self, pipeline: int | None = None) -> list[int]:
        """The first result of every fire, as one i32."""
        return [array("i", event.results[0])[0] for event in self.fired(pipeline)]

    def failures(self) -> list[m.Failed]:
        return [event for event in self.events if isinstance(event, m.Failed)]

    def goodbye(self) -> m.Goodbye | None:
        return next((event for event in self.events if isinstance(event, m.Goodbye)), None)

    @property
    def process(self):
        return self.bench.state.processes[self.number]

    def length(self, working_set: int) -> int:
        return self.process.working_sets[working_set].length


# ---- programs


def program(build: Callable[[Builder], Sequence[int]]) -> Program:
    builder = Builder()
    return builder.finish(build(builder)).program


def logits(b: Builder, lane: int = 0) -> int:
    return b.add("output", (), {"lane": lane, "name": "logits"})


def as_cell(b: Builder, value: int, rows: int = 1) -> int:
    return b.add("reshape", (value,), {"shape": (rows,)})


def greedy() -> Program:
    """Puts the best token on slot 0 and gives it."""

    def build(b: Builder) -> list[int]:
        token = b.add("reduce_argmax", (logits(b),))
        b.put(0, as_cell(b, token))
        return [token]

    return program(build)


def best(lanes: int = 1) -> Program:
    """Gives the best token of each lane; no channels."""
    return program(lambda b: [b.add("reduce_argmax", (logits(b, lane),)) for lane in range(lanes)])


def raw_logits() -> Program:
    return program(lambda b: [logits(b)])


@dataclass
class Chat:
    """A prompt and greedy decoding on one working set: what most inferlets do."""

    client: Client
    prompt: Sequence[int]

    def __post_init__(self) -> None:
        client = self.client
        self.token = client.channel()
        self.set = client.working_set()
        self.pipeline = client.pipeline()
        stage = client.stage(greedy(), self.token)
        self.prefill = client.define_pass(self.prompt, [self.set], epilogue=stage)
        self.decode = client.define_pass(self.token, [self.set], epilogue=stage)

    def start(self) -> None:
        self.client.submit(self.pipeline, self.prefill)

    def run(self, budget: int, credits: int = 6) -> int:
        return self.client.run(self.pipeline, self.decode, budget, credits)

    @property
    def tokens(self) -> list[int]:
        return self.client.tokens(self.pipeline)


def greedy_tokens(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """The oracle: every token by one pass over the whole sequence, on an engine of its own."""
    bench = Bench()
    client = bench.client()
    stage, tokens = client.stage(best()), list(prompt)
    for _ in range(num_tokens):
        pipeline = client.pipeline()
        pass_id = client.define_pass(tokens, [client.working_set()], epilogue=stage)
        client.submit(pipeline, pass_id)
        bench.settle()
        tokens.append(client.tokens(pipeline)[0])
    return tokens[len(prompt) :]
