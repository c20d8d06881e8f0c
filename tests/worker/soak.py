"""Many inferlets in one process, on one real engine with too little memory. Each is the real SDK.

    python -m tests.worker.soak [--seconds 600] [--at-once 300] [--seed 1] [--overlap]

The model's next token is a plain function of a sequence, and its pages hold the tokens themselves:
so every token that comes back can be checked, whatever the engine has moved, shared or dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import count

import torch

from inferlet import (
    Channel,
    ForwardPass,
    Pipeline,
    StateGeometry,
    WorkingSet,
    dtype,
    intrinsics,
    reduce_argmax,
)
from inferlet.runtime import handles
from inferlet.runtime.handles import Runtime
from inferlet.testing import Client, Hub
from inferlet.testing.harness import byte_vocabulary
from ipc import codec, frames
from ipc import messages as m
from ipc.transport import local_pair
from ipc.types import Limits
from tests.worker.sdk_hub import FunctionModel
from worker.config import Config
from worker.loop import Engine

torch.set_num_threads(1)  # what there is to compute is not worth sharing out

VOCABULARY = 250
PREFIXES = [[(7 * place + 11 * number) % VOCABULARY for place in range(24)] for number in range(4)]

current: ContextVar[Runtime] = ContextVar("current")


def next_token(tokens: list[int]) -> int:
    return (3 * sum(tokens[-5:]) + 7 * sum(tokens[::3]) + len(tokens)) % VOCABULARY


class SoakHub(Hub):
    """One inferlet's end. What it says goes to the shared engine."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(Client(stays=True), next_token, vocabulary=world.vocabulary)
        self.world, self.number = world, number

    def _on_bytes(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if kind == frames.ENGINE:
                self.world.link.send([], [(self.number, body)])

    def say(self, event: m.Event) -> None:
        token = current.set(self.runtime)
        super().say(event)
        current.reset(token)


class World:
    """The engine, and the inferlets that run on it."""

    def __init__(
        self, num_pages: int, seed: int, overlap: bool = False, patience: float = 5.0
    ) -> None:
        self.random = random.Random(seed)
        self.patience = patience  # seconds of CPU time without a fire, of whoever could
        self.hubs: dict[int, SoakHub] = {}
        self.num_checked = self.num_finished = self.num_killed = 0
        self.longest_stall = 0.0
        self.most_held = 0  # pages, by all inferlets
        self._numbers = count(1)
        self.vocabulary = byte_vocabulary()
        info = Hub(Client(), vocabulary=self.vocabulary).info
        model = FunctionModel(info, next_token)
        model.allocate(num_pages)
        self.link, worker_end = local_pair()
        config = Config(
            row_budget=64, short_rows=16, min_chunk=4, min_shared=4, idle_waves=4, tenure_waves=8,
            patience_floor=0.0, patience_share=0.0, overlap=overlap, stats_interval=1e9,
        )  # fmt: skip
        self.engine = Engine(model, num_pages, worker_end, config)

    async def run(self, seconds: float, at_once: int, least: int = 0) -> None:
        """Starts inferlets for so long, and at least so many, then waits for all of them."""
        end = time.monotonic() + seconds
        num_started = 0
        pump = asyncio.create_task(self._pump())
        running: set[asyncio.Task] = set()
        while (goes_on := num_started < least or time.monotonic() < end) or running:
            while len(running) < at_once and goes_on:
                running.add(asyncio.create_task(self._live()))
                num_started += 1
            done, running = await asyncio.wait(
                running | {pump}, return_when=asyncio.FIRST_COMPLETED
            )
            running.discard(pump)
            for task in done:
                task.result()  # raises what went wrong
        pump.cancel()
        while self.engine.step():
            pass
        self.engine.state.check_integrity()

    async def _pump(self) -> None:
        """One step of the engine at a time; what it says is delivered in between."""
        last_fire = time.process_time()  # others may have the machine for seconds
        while True:
            busy = self.engine.step()
            if self.random.random() < 0.02:
                self.engine.state.check_integrity()
            pool = self.engine.state.pool
            self.most_held = max(self.most_held, pool.capacity - pool.num_free)
            now = time.process_time()
            while (message := self.link.receive()) is not None:
                for number, body in message[1]:
                    for event in codec.decode_events(body):
                        last_fire = now
                        if number in self.hubs:
                            self.hubs[number].say(event)
            if not self.engine.state.active:
                last_fire = now
            self.longest_stall = max(self.longest_stall, now - last_fire)
            waiting = self.engine.scheduler.waiting
            assert now - last_fire < self.patience, f"nothing fires: {waiting}"
            await asyncio.sleep(0 if busy else 0.0005)

    async def _live(self) -> None:
        """One inferlet from its start to its end, which may be sudden."""
        number = next(self._numbers)
        hub = self.hubs[number] = SoakHub(self, number)
        priority = self.random.choice([0, 0, 0, 1])
        salt = self.random.choice(["", "", "b"])
        self.link.send([m.ProcessStarted(number, Limits(), salt, priority)], [])
        current.set(hub.runtime)
        main = asyncio.create_task(Inferlet(self, random.Random(number)).main())
        is_killed = self.random.random() < 0.2
        await asyncio.wait([main], timeout=self.random.uniform(0, 1) if is_killed else None)
        if main.done():
            main.result()
            self.num_finished += 1
        else:
            main.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await main
            self.num_killed += 1
        hub.runtime.close()
        hub.runtime.outbox.flush()
        del self.hubs[number]
        self.link.send([m.ProcessEnded(number)], [])


class Inferlet:
    """A program that does anything, and checks every token."""

    def __init__(self, world: World, choice: random.Random) -> None:
        self.world, self.choice = world, choice

    async def main(self) -> None:
        branches = [Branch(self, WorkingSet(), [], None)]
        prompt = self.choice.choice([[], *PREFIXES]) + self._tokens(1, 30)
        cut = self.choice.randint(0, len(prompt) - 1)
        if cut:
            branches[0].append_only(prompt[:cut])
        await branches[0].submit(prompt[cut:])
        for _ in range(self.choice.randint(1, 6)):
            branch = self.choice.choice(branches)
            action = self.choice.random()
            if action < 0.5:
                await branch.run(self.choice.randint(1, 24))
            elif action < 0.65:
                await branch.submit(self._tokens(1, 12))
            elif action < 0.8 and len(branches) < 4:
                branches.append(branch.fork())
            elif action < 0.9:
                branch.pipe.park()
                await asyncio.sleep(self.choice.uniform(0, 0.05))
            elif len(branches) > 1:
                branches.remove(branch)
            else:
                await asyncio.gather(*(branch.frame() for branch in branches))
            if self.choice.random() < 0.3:
                await asyncio.gather(*(branch.run(5) for branch in branches))

    def _tokens(self, least: int, most: int) -> list[int]:
        return [self.choice.randrange(VOCABULARY) for _ in range(self.choice.randint(least, most))]


class Branch:
    """One sequence, and what it must hold."""

    def __init__(self, owner: Inferlet, ws: WorkingSet, tokens: list[int], seed: int | None):
        self.owner, self.ws, self.tokens = owner, ws, tokens
        self.pipe, self.next = Pipeline(), None
        if seed is not None:
            self._seed(seed)

    def fork(self) -> Branch:
        child = self.ws.fork(self.pipe)
        return Branch(self.owner, child, self.tokens[:], next_token(self.tokens))

    def append_only(self, tokens: list[int]) -> None:
        self.pipe.submit(self._pass(tokens)[0])
        self.tokens += tokens

    async def submit(self, tokens: list[int]) -> None:
        """Rows that the host knows; the next token is checked."""
        fwd, result = self._pass(tokens, reads=True)
        self.pipe.submit(fwd)
        self.tokens += tokens
        self._check(await result)
        self._seed(next_token(self.tokens))

    def _seed(self, token: int) -> None:
        """The next decode begins with this token. Stages put the channel: a new one takes it."""
        self.next = Channel([1], dtype.i32)
        self.next.put(token)

    async def frame(self) -> None:
        """Two decodes back to back."""
        fwd, result = self._pass(self.next, puts=True)
        self.pipe.submit_frame([fwd, fwd])
        for _ in range(2):
            self.tokens.append(next_token(self.tokens))
            self._check(await result)

    async def run(self, budget: int) -> None:
        """Decodes up to `budget` tokens, and stops anywhere."""
        stop = self.owner.choice.randint(1, budget)
        fwd, _ = self._pass(self.next, puts=True)
        delivered = 0

        def on_token(token: int) -> bool:
            nonlocal delivered
            self.tokens.append(next_token(self.tokens))
            self._check(token)
            delivered += 1
            return delivered < stop

        await self.pipe.run_ahead(fwd, budget, on_token)

    def _pass(self, tokens: object, reads: bool = False, puts: bool = False) -> tuple:
        fwd = ForwardPass()
        fwd.embed(tokens)
        fwd.state([self.ws], StateGeometry.folding())

        def epilogue() -> object:
            token = reduce_argmax(intrinsics.output(0, "logits"))
            if puts:
                self.next.put(token)
            return token

        return fwd, fwd.epilogue(epilogue) if reads or puts else None

    def _check(self, token: int) -> None:
        assert token == next_token(self.tokens), f"a wrong token after {len(self.tokens)}"
        assert self.ws.cached_tokens() <= self.ws.folded()
        self.owner.world.num_checked += 1


@contextlib.contextmanager
def each_task_its_runtime() -> Iterator[None]:
    """The API finds the runtime of the task that calls it."""
    installed = handles.current
    handles.current = current.get
    try:
        yield
    finally:
        handles.current = installed


def check_clean(world: World) -> None:
    """AssertionError unless everything that inferlets had is free."""
    state, launcher = world.engine.state, world.engine.launcher
    assert state.pool.num_free == state.pool.capacity
    assert state.swap.num_used == 0
    assert launcher.swap_space.num_pages == 0
    assert not (state.processes or state.active or state.computing or state.events or state.turns)
    assert not launcher.rings._slabs


def soak(
    seconds: float,
    at_once: int,
    num_pages: int,
    seed: int,
    overlap: bool,
    patience: float = 5.0,
    least: int = 0,
) -> World:
    """The world after so many seconds and inferlets, with everything that was in it gone."""
    with each_task_its_runtime():
        world = World(num_pages, seed, overlap, patience)
        asyncio.run(world.run(seconds, at_once, least))
    check_clean(world)
    return world


PAGES_EACH = 1  # an inferlet of a crowd holds three when it can, on average


def main() -> None:
    parser = argparse.ArgumentParser(description="Inferlets that do anything, for long.")
    parser.add_argument("--seconds", default=600, type=float)
    parser.add_argument("--at-once", default=300, type=int)
    parser.add_argument("--pages", type=int, help=f"of the pool; {PAGES_EACH} for each by default")
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--overlap", action="store_true", help="as on a GPU")
    options = parser.parse_args()
    num_pages = 1 + (options.pages or PAGES_EACH * options.at_once)
    world = soak(
        options.seconds, options.at_once, num_pages, options.seed, options.overlap, patience=60.0
    )
    print(
        f"{world.engine.scheduler.waves} waves, {world.num_checked} tokens checked, none wrong; "
        f"{world.num_finished} inferlets finished, {world.num_killed} killed; nothing leaked; "
        f"at most {world.most_held} of {num_pages - 1} pages held, "
        f"{world.engine.state.swap._next} more in host memory, "
        f"longest stall {world.longest_stall:.2f} s"
    )


if __name__ == "__main__":
    main()
