"""Random takes, reads and puts of a fire's stages against the contract's table (10.2, 10.3), kept
as two values for each channel. Also across stages: prologue, token port, epilogue."""

import random

import pytest

from inferlet import Channel, ForwardPass, InferletError, Pipeline, StateGeometry, WorkingSet
from tests.inferlet.support import count_up, on_engine, settle

CAPACITY = 3
NOTHING = None


class Expected:
    """One channel by the words of the contract."""

    def __init__(self):
        self.ring = [1]
        self.start()

    def start(self):
        """A fire begins."""
        self.new = self.taken = NOTHING
        self.is_popped = self.needs_front = False

    def read(self):
        return self._front() if self.new is NOTHING else self.new

    def take(self):
        if self.new is not NOTHING:
            self.taken, self.new = self.new, NOTHING
        elif self.taken is NOTHING:  # else again, with no put between
            self.taken = self._front()
            self.is_popped = True
        return self.taken

    def put(self, value):
        self.new, self.taken = value, NOTHING

    def _front(self):
        self.needs_front = True
        return self.ring[0] if self.ring else 0

    def after(self):
        """The ring after the commit; None when the submit is refused."""
        if self.needs_front and not self.ring:
            return None
        ring = self.ring[self.is_popped :]
        ring += [] if self.new is NOTHING else [self.new]
        return ring if len(ring) <= CAPACITY else None


class Lines:
    """What the two stages do: (channel, "take" | "read" | number to put)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.prologue = self._stage(self.random.choice([0, 1, 3, 5]))
        self.epilogue = self._stage(self.random.choice([0, 2, 4, 6]))
        self.embeds = self.random.random() < 0.4  # the token port consumes channel 0

    def _stage(self, size):
        def line():
            act = self.random.choice(["take", "read", "put", "put"])
            return self.random.randrange(2), self.random.randrange(2, 99) if act == "put" else act

        return [line() for _ in range(size)]

    def expect(self, models):
        """What the epilogue's takes and reads give."""
        for model in models:
            model.start()
        self._play(self.prologue, models)
        if self.embeds:
            models[0].take()
        return self._play(self.epilogue, models)

    @staticmethod
    def _play(lines, models):
        values = []
        for number, act in lines:
            if isinstance(act, int):
                models[number].put(act)
            else:
                values.append(getattr(models[number], act)())
        return values

    def trace(self, lines, channels):
        return [
            channels[number].put(act)
            if isinstance(act, int)
            else getattr(channels[number], act)() + 0
            for number, act in lines
        ]


def build(lines, channels, ws):
    """The pass, with the awaitable of its epilogue."""
    fwd = ForwardPass()
    fwd.embed(channels[0] if lines.embeds else [1])
    fwd.state([ws], StateGeometry.folding())
    fwd.prologue(lambda: lines.trace(lines.prologue, channels) and None)

    def epilogue():
        return [made for made in lines.trace(lines.epilogue, channels) if made is not None] + [0]

    return fwd, fwd.epilogue(epilogue)


@pytest.mark.parametrize("seed", range(150))
def test_stages_of_a_fire_see_what_the_contract_says(seed):
    @on_engine(count_up)
    async def run(hub):
        lines, models = Lines(seed), [Expected(), Expected()]
        channels = [Channel.from_([1]).capacity(CAPACITY) for _ in models]
        fwd, result = build(lines, channels, WorkingSet())
        pipe = Pipeline()
        for _ in range(5):
            values, after = lines.expect(models), [model.after() for model in models]
            if None in after:
                with pytest.raises(InferletError):
                    pipe.submit(fwd)
                return
            pipe.submit(fwd)
            assert await result == [*values, 0], (lines.prologue, lines.embeds, lines.epilogue)
            for model, ring in zip(models, after, strict=True):
                model.ring = ring
        await settle()

    run()
