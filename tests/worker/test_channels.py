"""Channels are FIFOs, whatever the order of puts, fires, changes, runs, stops and watching: the
engine against plain deques."""

from array import array
from collections import deque

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from ipc import messages as m
from ipc.types import DType, TensorType
from tests.worker.bench import Bench, program
from worker.channels import DeviceRings

PAIR = TensorType(DType.i32, (2,))
WINDOW = 6


def _moving(kind: str):
    """Puts the double of what it takes or reads from slot 0 on slot 1."""

    def build(b):
        value = b.take(0) if kind == "take" else b.read(0)
        b.put(1, b.add("add", (value, value)))
        return []

    return program(build)


class Channels(RuleBasedStateMachine):
    """`source` is filled by the host, `sink` by passes. The model is the host's view: `cells` after
    everything that was accepted, and `expected` values of the sink in order."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.client = client = self.bench.client()
        self.pipeline = client.pipeline()
        self.capacity = 3
        self.source = client.channel(PAIR, self.capacity)
        self.sink = client.channel(PAIR, 40)
        held = client.working_set()
        self.passes = {
            kind: client.define_pass(
                [1], [held], readout=[[]],
                epilogue=client.stage(_moving(kind), self.source, self.sink), has_results=False,
            )
            for kind in ("take", "read")
        }  # fmt: skip
        self.cells: deque[list[int]] = deque()
        self.expected: list[list[int]] = []
        self.undone: set[int] = set()
        self.fires = 0  # in the sink and not sent
        self.next_value = 1
        self.is_watched = False

    def _value(self) -> list[int]:
        self.next_value += 1
        return [self.next_value, -self.next_value]

    def _fire(self, kind: str) -> None:
        front = self.cells.popleft() if kind == "take" else self.cells[0]
        self.expected.append([2 * value for value in front])

    @precondition(lambda self: len(self.cells) < self.capacity)
    @rule()
    def put(self) -> None:
        value = self._value()
        self.cells.append(value)
        self.client.put(self.source, value)

    @precondition(lambda self: self.cells)
    @rule()
    def change(self) -> None:
        value = self._value()
        self.cells[0] = value
        self.client.say(m.SetCell(self.source, array("i", value).tobytes()))

    @precondition(lambda self: self.cells and len(self.expected) < 30)
    @rule(kind=st.sampled_from(["take", "read"]))
    def submit(self, kind: str) -> None:
        self._fire(kind)
        self.client.submit(self.pipeline, self.passes[kind])

    @rule()
    def step(self) -> None:
        self.bench.step()

    @precondition(lambda self: self.cells and len(self.expected) < 30)
    @rule(kind=st.sampled_from(["take", "read"]), budget=st.integers(1, 9), data=st.data())
    def run_and_stop(self, kind: str, budget: int, data: st.DataObject) -> None:
        room = len(self.cells) if kind == "take" else WINDOW
        credits = min(WINDOW, room, budget)
        first = self.client.run(self.pipeline, self.passes[kind], budget, credits)
        if data.draw(st.booleans()):
            self.bench.settle()
            delivered = data.draw(st.integers(0, credits))
        else:
            delivered = 0  # nothing has run, or the host has heard of nothing
        self.client.say(m.Stop(self.pipeline, first + delivered - 1))
        for _ in range(delivered):
            self._fire(kind)
        self.undone |= set(range(first + delivered, first + budget))

    @precondition(lambda self: not self.is_watched)
    @rule()
    def watch(self) -> None:
        self.is_watched = True
        self.client.say(m.Watch(self.sink))

    def teardown(self) -> None:
        self.client.say(m.Watch(self.sink))
        self.bench.settle()
        assert self.client.goodbye() is None, self.client.goodbye()
        assert not self.client.failures()
        got = []
        for event in self.client.events:
            if isinstance(event, m.Cells):
                got += event.cells
            elif isinstance(event, m.Fired) and event.seq not in self.undone:
                got += [cell for _, cell in event.cells]
        assert [array("i", cell).tolist() for cell in got] == self.expected
        assert self.client.process.channels[self.source].held == len(self.cells)
        assert self.client.process.queued == 0
        held = self.client.process.channels[self.source]
        limit = held.ring * PAIR.nbytes + self.client.process.channels[self.sink].ring * PAIR.nbytes
        assert self.client.process.channel_bytes == limit  # nothing waits for room any more


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_any_number_of_cells_may_be_put_for_fires_that_are_accepted() -> None:
    bench = Bench()
    client = bench.client()
    source, sink = client.channel(PAIR, 1), client.channel(PAIR, 1)
    stage = client.stage(_moving("take"), source, sink)
    pass_id = client.define_pass(
        [1], [client.working_set()], readout=[[]], epilogue=stage, has_results=False
    )
    pipeline = client.pipeline()
    client.say(m.Watch(sink))
    for value in range(40):  # the host counts what accepted fires will pop
        client.put(source, [value, 1])
        client.submit(pipeline, pass_id)
    bench.settle()
    cells = [array("i", cell)[0] for event in client.fired() for _, cell in event.cells]
    assert cells == [2 * value for value in range(40)]


def test_a_run_waits_while_a_ring_is_full() -> None:
    bench = Bench()
    client = bench.client()
    source, sink = client.channel(PAIR, 1, [1, 1]), client.channel(PAIR, 2)
    stage = client.stage(_moving("read"), source, sink)
    pass_id = client.define_pass(
        [1], [client.working_set()], readout=[[]], epilogue=stage, has_results=False
    )
    client.run(client.pipeline(), pass_id, 5)
    bench.settle()
    assert len(client.fired()) == 2
    client.say(m.Watch(sink))
    bench.settle()
    assert len(client.fired()) == 5


def _write(rings: DeviceRings, base: int, *values: int) -> None:
    for place, value in enumerate(values):
        rings.write(PAIR, base + place, array("i", [value, value]).tobytes())


def test_a_growing_slab_keeps_the_cells_of_all_channels() -> None:
    rings = DeviceRings(torch.device("cpu"))
    bases = [rings.allocate(PAIR, 7) for _ in range(40)]
    for number, base in enumerate(bases):
        _write(rings, base, *range(number, number + 7))
    bases += [rings.allocate(PAIR, 300)]
    assert len({base + i for base in bases[:-1] for i in range(7)} | {bases[-1]}) == 281
    for number, base in enumerate(bases[:-1]):
        cells = rings.read(PAIR, range(base, base + 7))
        assert [array("i", cell)[0] for cell in cells] == list(range(number, number + 7))


def test_freed_ranges_join_and_are_used_again() -> None:
    rings = DeviceRings(torch.device("cpu"))
    bases = [rings.allocate(PAIR, 10) for _ in range(6)]
    size = len(rings._slabs[PAIR].cells)
    for base in bases[1:4]:
        rings.free(PAIR, base, 10)
    assert rings.allocate(PAIR, 30) == bases[1]
    assert len(rings._slabs[PAIR].cells) == size


def test_the_last_write_to_a_cell_wins() -> None:
    rings = DeviceRings(torch.device("cpu"))
    base = rings.allocate(PAIR, 2)
    _write(rings, base, 1)
    _write(rings, base, 2)
    assert rings.gather(PAIR, [base]).tolist() == [[0, 0]]
    rings.flush()
    assert rings.gather(PAIR, [base]).tolist() == [[2, 2]]
