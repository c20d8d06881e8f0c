"""Random programs against a model of the contract in plain lists: submits, runs, stops, puts, sets,
takes and forks, in any order. A failure prints its seed."""

import random
from collections import deque

import pytest

from inferlet import Channel, ChannelFull, InferletError, Pipeline, WorkingSet, dtype, gather
from tests.inferlet.support import appending, count_up, greedy, on_engine, settle

FEED, OUT = 4, 3


class Expected:
    """What one fire does, in lists."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.length, self.token, self.knob = 0, 0, 0
        self.tokens = []
        self.feed, self.out, self.results = deque(), deque(), deque()

    def can_fire(self):
        has_room = len(self.out) < OUT and len(self.results) < self.capacity
        return bool(self.feed) and has_room

    def fire(self):
        self.tokens.append(self.token)
        self.length += 1
        self.token = self.length % 256
        self.out.append(self.token + 1000 * self.feed.popleft())
        return self.token + self.knob


class Program:
    """The same on the engine, step by step beside `Expected`."""

    def __init__(self, seed, capacity):
        self.random = random.Random(seed)
        self.expected = Expected(capacity)
        self.ws, self.pipe = WorkingSet(), Pipeline()
        self.token, self.knob = Channel.from_([0]), Channel.from_(0)
        self.feed = Channel([1], dtype.i32).capacity(FEED)
        self.out = Channel((), dtype.i32).capacity(OUT)
        self.fwd, self.result = appending(self.ws, self.token, self.stage)
        self.forks = []

    def stage(self):
        token = greedy(self.token)()
        self.out.put(token + gather(self.feed.take(), 0) * 1000)
        return token + self.knob.read()

    # ---- steps

    async def put(self):
        value = self.random.randrange(50)
        if len(self.expected.feed) == FEED:
            with pytest.raises(ChannelFull):
                self.feed.put(value)
        else:
            self.feed.put(value)
            self.expected.feed.append(value)

    async def set_knob(self):
        self.expected.knob = 10_000 * self.random.randrange(1, 50)
        self.knob.set(self.expected.knob)

    async def set_feed(self):
        value = self.random.randrange(50, 99)
        if not self.expected.feed:
            with pytest.raises(InferletError, match="holds no cell"):
                self.feed.set(value)
        else:
            self.feed.set(value)
            self.expected.feed[0] = value

    async def take(self):
        if not self.expected.out:
            with pytest.raises(InferletError, match="nothing will fill"):
                await self.out.take()
        else:
            assert await self.out.take_scalar() == self.expected.out.popleft()

    async def submit(self):
        if not self.expected.can_fire():
            with pytest.raises(InferletError):
                self.pipe.submit(self.fwd)
        else:
            self.pipe.submit(self.fwd)
            self.expected.results.append(self.expected.fire())

    async def await_result(self):
        if not self.expected.results:
            with pytest.raises(InferletError, match="nothing to await"):
                await self.result
        else:
            assert await self.result == self.expected.results.popleft()

    async def fork(self):
        self.forks.append((self.ws.fork(self.pipe), self.expected.length))

    async def pause(self):
        await settle(self.random.randrange(30))

    async def run(self):
        budget, stop = self.random.randrange(1, 14), self.random.randrange(1, 14)
        calls, outcome = 0, None

        async def on_token(value):
            nonlocal calls
            calls += 1
            assert self.expected.can_fire()
            assert value == self.expected.fire()
            assert self.ws.folded() == self.expected.length
            for _ in range(self.random.randrange(5)):
                step = getattr(self, self.random.choice(STEPS_IN_RUN))
                if self.expected.out or step != self.take:
                    await step()
            return calls < stop

        try:
            outcome = await self.pipe.run_ahead(self.fwd, budget, on_token)
        except InferletError as error:
            assert not self.expected.can_fire() and calls < min(budget, stop), error
        else:
            assert outcome == calls == min(budget, stop)

    async def finish(self, hub):
        while self.expected.results:
            await self.await_result()
        while self.expected.out:
            await self.take()
        await settle()
        assert self.ws.folded() == self.expected.length
        assert hub.worker.sets_ever[self.ws._number] == self.expected.tokens
        for child, length in self.forks:
            assert child.folded() == length
            assert hub.worker.sets_ever[child._number] == self.expected.tokens[:length]


STEPS = ["put"] * 6 + ["submit"] * 4 + ["take"] * 4 + ["await_result"] * 4 + ["run"] * 4
STEPS += ["set_knob", "set_feed", "fork", "pause"]
STEPS_IN_RUN = ["put", "put", "take", "take", "set_knob", "set_feed", "pause"]


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_behaves_as_the_contract(seed):
    capacity = (2, 3, 7, 9)[seed % 4]

    @on_engine(count_up, engine={"channel_capacity": capacity}, cells_first=seed % 3 == 0)
    async def run(hub):
        program = Program(seed, capacity)
        for _ in range(60):
            await getattr(program, program.random.choice(STEPS))()
        await program.finish(hub)

    run()
