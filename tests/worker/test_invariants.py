"""The invariants of the architecture that need an engine of their own to be shown; the table in the
README of this folder names the tests of all of them."""

import ast
import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from inferlet.testing import Client, run_with
from ipc import messages as m
from tests.worker import sdk_hub
from tests.worker.bench import Bench, Chat
from tests.worker.geometry_script import play, scripts
from tests.worker.test_company import advance, start

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("README.md")
INVARIANTS = [f"I{number}" for number in range(1, 13)]


def table() -> dict[str, list[str]]:
    """invariant -> `file::test` of the rows of the README's table."""
    rows = re.findall(r"^\| (I\d+) \|.*\| (.*) \|$", TABLE.read_text(), re.MULTILINE)
    return {name: re.findall(r"`([^`]+)`", tests) for name, tests in rows}


def names_in(path: Path) -> set[str]:
    """Functions and test cases of a file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_the_table_names_tests_of_every_invariant() -> None:
    named = table()
    assert list(named) == INVARIANTS and all(named.values())
    for tests in named.values():
        for test in tests:
            file, name = test.split("::")
            assert name in names_in(ROOT / "tests" / file), test


def test_every_test_of_the_worker_ends_with_a_check(request: pytest.FixtureRequest) -> None:
    assert "whole_states" in request.fixturenames
    state = Bench().state
    state.pool.take(1)
    with pytest.raises(AssertionError, match="held pages"):
        state.check_integrity()
    state.pool.release([1])


# ---- I2, I3, I6


class Watched(sdk_hub.FunctionModel):
    """A model that looks where its rows go."""

    def forward(self, batch):
        slots = batch.slot_mapping.numpy()
        slots = slots[slots >= 0]
        pages = set((slots // self.page_size).tolist())
        self.watch.expect("I3", len(np.unique(slots)) == len(slots))
        self.watch.expect("I2", all(self.watch.pool.refs[page] == 1 for page in pages))
        return super().forward(batch)


class Watch:
    """What an engine does wrong. Told at the end: nobody would hear of it in the middle."""

    def __init__(self, hub: sdk_hub.WorkerHub) -> None:
        self.state, self.pool, self.model = hub.real.state, hub.real.state.pool, hub._model
        self.model.watch = self
        self.wrong: list[str] = []
        self.num_fired = 0
        self._frozen: dict[object, list[int]] = {}
        self._fired: dict[int, int] = {}
        self._step, self._say = hub.real.step, hub.say
        hub.real.step, hub.say = self.step, self.say

    def expect(self, invariant: str, holds: bool) -> None:
        if not holds:
            self.wrong.append(invariant)

    def step(self) -> bool:
        worked = self._step()
        for process in self.state.processes.values():
            for held in process.live_sets:
                if held.saved is None:
                    self._look(held)
        return worked

    def _look(self, held) -> None:
        frozen = self.model.tokens(list(held.pages), held.frozen)
        before = self._frozen.get(held, [])
        self.expect("I2", frozen[: len(before)] == before)
        if held.user is None or held.user.last_run is None:  # nothing can be undone
            self._frozen[held] = frozen

    def say(self, event) -> None:
        if isinstance(event, m.Fired):
            self.expect("I6", event.seq > self._fired.get(event.pipeline, -1))
            self._fired[event.pipeline] = event.seq
            self.num_fired += 1
        self._say(event)


@pytest.fixture(scope="module")
def watched_model():
    """For the module: examples of one test share it."""
    make, sdk_hub.FunctionModel = sdk_hub.FunctionModel, Watched
    yield
    sdk_hub.FunctionModel = make


@settings(max_examples=30, deadline=None)
@given(script=scripts)
def test_i2_i3_i6_frozen_rows_stay_slots_are_written_once_and_fires_keep_their_order(
    watched_model, script
):
    size = {"output_vocab_size": 64, "vocab_size": 64, "context_length": 40}
    hub = sdk_hub.WorkerHub(Client(stays=True), info=size)
    watch = Watch(hub)
    asyncio.run(run_with(hub, play, script))
    assert not watch.wrong
    assert watch.num_fired or script[0][0] != "fold"


# ---- I9


def waves_of_a_chat(bench: Bench) -> int:
    chat, before = Chat(bench.client(), [5, 6, 7]), bench.engine.scheduler.waves
    chat.start()
    chat.run(24)
    for _ in range(24):
        bench.settle()
        if len(chat.tokens) < 20:
            chat.client.say(m.Credit(chat.pipeline, 1))
    assert len(chat.tokens) == 20
    return bench.engine.scheduler.waves - before


def test_i9_an_inferlet_that_never_answers_slows_nobody() -> None:
    """It takes no cell, gives no credit, and reads no event."""
    alone, bench = waves_of_a_chat(Bench()), Bench()
    deaf = Chat(bench.client(), [4, 4, 4])
    deaf.start()
    deaf.run(40)
    bench.settle()
    assert waves_of_a_chat(bench) == alone
    assert len(deaf.tokens) == 7  # as far as its credits go


# ---- I10


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("pages", [9, 64])
def test_i10_when_a_process_vanishes_all_it_owned_is_free_within_one_wave(steps, pages) -> None:
    bench = Bench(num_pages=pages, idle_waves=1, tenure_waves=1, prefix_cache=False, row_budget=8)
    gone, stays = bench.client(), Chat(bench.client(), [7, 7, 7])
    stays.start()
    chats = [Chat(gone, [number, 1, 2, 3, 4, 5]) for number in range(1, 4)]
    for chat in chats:
        chat.start()
        chat.run(9)
        gone.fork(chat.set, chat.pipeline)
    for _ in range(steps):
        bench.step()
    bench.hub.send([m.ProcessEnded(gone.number)], [])
    bench.step()
    state, own = bench.state, stays.client.process.pages
    assert state.pool.capacity - state.pool.num_free == own
    assert set(state.processes) == {stays.client.number}
    bench.settle()
    saved = sum(len(held.saved or ()) for held in stays.client.process.live_sets)
    assert state.swap.num_used == bench.engine.launcher.swap_space.num_pages == saved
    assert len(stays.tokens) == 1


# ---- I11

SAMPLED = [45, 57, 42, 32, 12, 34, 48, 21, 52, 26]


def sampled() -> list[int]:
    """From an engine that has just been made."""
    bench = Bench()
    client = bench.client()
    start(client, 7)
    advance(bench, [client])
    return client.tokens()


def test_i11_the_same_program_and_seed_give_the_same_tokens_after_a_restart() -> None:
    assert sampled() == sampled() == SAMPLED
