"""Who gets into a wave, and what a limit costs: counted in waves and rows, never in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import DType, Limits, TensorType
from tests.worker.bench import CONFIG, PAGE_SIZE, Bench, Chat, Client, best, greedy_tokens

PROMPT = [3, 1, 4, 1, 5]
EXPECTED = greedy_tokens(PROMPT, 12)
LONG = [(11 * place) % 60 + 1 for place in range(2000)]


class Waves:
    """Remembers which processes were in each wave, and how many rows they had."""

    def __init__(self, bench: Bench) -> None:
        self.rows: list[dict[int, int]] = []
        launcher = bench.engine.launcher
        launch = launcher.launch

        def note(wave):
            rows: dict[int, int] = {}
            for segment in wave.segments:
                number = segment.fire.process.number
                rows[number] = rows.get(number, 0) + segment.stop - segment.start
            self.rows.append(rows)
            return launch(wave)

        launcher.launch = note

    def of(self, client: Client) -> list[int]:
        """Its rows in every wave."""
        return [rows.get(client.number, 0) for rows in self.rows]


def _credit(chats: list[Chat]) -> None:
    for chat in chats:
        chat.client.say(m.Credit(chat.pipeline, 3))


def _crowd_and_one(config=CONFIG, priorities: tuple[int, int] = (0, 0)):
    """A process with 200 pipelines that all decode, and one with a single one that does."""
    bench = Bench(4096, config=replace(config, row_budget=16))
    many = bench.client(priority=priorities[0])
    crowd = [Chat(many, [number % 60 + 1, 2, 3]) for number in range(200)]
    single = Chat(bench.client(priority=priorities[1]), PROMPT)
    for chat in [*crowd, single]:
        chat.start()
    bench.settle()
    for chat in [*crowd, single]:
        chat.run(1000)
    return bench, crowd, single


def test_two_hundred_pipelines_of_one_process_leave_another_its_place_in_every_wave() -> None:
    bench, crowd, single = _crowd_and_one()
    bench.step()
    waves = Waves(bench)
    for number in range(30):
        bench.step()
        if number % 3 == 2:
            _credit([*crowd, single])
    assert waves.of(single.client) == [1] * 30
    assert waves.of(crowd[0].client) == [15] * 30


def test_pipelines_of_one_process_take_turns() -> None:
    bench, crowd, _ = _crowd_and_one()
    for chat in crowd:
        chat.client.events.clear()
    for _ in range(2 * 200 // 15 + 2):
        bench.step()
        _credit(crowd[:1])
    counts = [len(chat.tokens) for chat in crowd]
    assert min(counts) >= 2 and max(counts) <= 3


def test_a_lower_priority_gets_a_fire_in_every_so_many_waves() -> None:
    bench, crowd, single = _crowd_and_one(replace(CONFIG, passed_over=8), priorities=(3, 0))
    waves = Waves(bench)
    for number in range(60):
        bench.step()
        if number % 3 == 2:
            _credit([*crowd, single])
    turns = [wave for wave, rows in enumerate(waves.of(single.client)) if rows]
    assert len(turns) >= 6
    assert {b - a for a, b in zip(turns, turns[1:])} == {9}  # eight waves without it


@pytest.mark.parametrize("priorities", [(0, 5), (-2, 0)])
def test_a_higher_priority_is_in_every_wave(priorities: tuple[int, int]) -> None:
    bench, crowd, single = _crowd_and_one(priorities=priorities)
    waves = Waves(bench)
    for _ in range(6):
        bench.step()
    assert waves.of(single.client) == [1] * 6


def test_two_processes_with_one_long_prompt_compute_it_once() -> None:
    bench = Bench(2048, context=4096, row_budget=256)
    waves = Waves(bench)
    first, second = (Chat(bench.client(), LONG) for _ in range(2))
    first.start()
    second.start()
    bench.settle()
    assert first.tokens == second.tokens != []
    rows = sum(waves.of(first.client)) + sum(waves.of(second.client))
    assert rows == len(LONG) + PAGE_SIZE  # the last page has the row that is read out
    counted = [chat.client.process.tokens_in for chat in (first, second)]
    assert sum(counted) == rows
    cached = [event.cached for event in second.client.fired()]
    assert cached == [(len(LONG) - PAGE_SIZE,)]


def test_another_salt_computes_the_prompt_again() -> None:
    bench = Bench(2048, context=4096, row_budget=256)
    waves = Waves(bench)
    chats = [Chat(bench.client(salt=salt), LONG) for salt in ("a", "b")]
    for chat in chats:
        chat.start()
    bench.settle()
    assert sum(sum(waves.of(chat.client)) for chat in chats) == 2 * len(LONG)


# ---- limits: who hits one is told which, and nobody else notices


def _too_many_pages(client: Client) -> None:
    Chat(client, list(range(1, 6 * PAGE_SIZE))).start()


def _too_many_pipelines(client: Client) -> None:
    for _ in range(4):
        client.pipeline()


def _too_large_channels(client: Client) -> None:
    client.channel(TensorType(DType.f32, (64, 64)))


def _too_many_puts(client: Client) -> None:
    """Cells that wait for room are counted, too."""
    channel = client.channel(TensorType(DType.i32, (16,)))
    set_, pipeline = client.working_set(), client.pipeline()
    pass_id = client.define_pass(channel, [set_], num_rows=16, epilogue=client.stage(best()))
    never = client.define_pass(client.channel(), [set_])  # waits for a token for ever
    client.submit(pipeline, never)
    for _ in range(10):
        client.put(channel, [1] * 16)
        client.submit(pipeline, pass_id)


def _too_many_passes(client: Client) -> None:
    set_, pipeline = client.working_set(), client.pipeline()
    pass_id = client.define_pass(client.channel(), [set_])
    for _ in range(12):
        client.submit(pipeline, pass_id)


LIMITS = Limits(pages=4, pipelines=3, channels=1000, passes=11)
EXCESSES = {
    "pages": (_too_many_pages, "4 pages"),
    "pipelines": (_too_many_pipelines, "3 pipelines"),
    "channels": (_too_large_channels, "1000 bytes"),
    "puts": (_too_many_puts, "1000 bytes"),
    "passes": (_too_many_passes, "11 queued passes"),
}


@pytest.mark.parametrize("name", EXCESSES)
def test_a_limit_is_told_with_its_number_and_stops_nobody_else(name: str) -> None:
    exceed, words = EXCESSES[name]
    bench = Bench()
    good = Chat(bench.client(), PROMPT)
    good.start()
    good.run(6)
    bench.step()
    bad = bench.client(LIMITS)
    exceed(bad)
    waves = Waves(bench)
    bench.settle()
    goodbye = bad.goodbye()
    failure = goodbye.failure if goodbye is not None else bad.failures()[0].failure
    assert failure.code == ErrorCode.LIMIT and words in failure.message
    assert good.tokens == EXPECTED[:7]
    assert waves.of(good.client)[:6] == [1] * 6  # in every wave, as if alone


@pytest.mark.parametrize(
    ("name", "words"),
    [("pages", "more than 1 page"), ("pipelines", "1 pipeline at"), ("passes", "1 queued pass")],
)
def test_a_limit_of_one_is_told_in_the_singular(name: str, words: str) -> None:
    bench = Bench()
    bad = bench.client(Limits(**{name: 1}))
    EXCESSES[name][0](bad)
    bench.settle()
    goodbye = bad.goodbye()
    message = (goodbye or bad.failures()[0]).failure.message
    assert words in message and "1 pages" not in message and "1 queued passes" not in message


@pytest.mark.parametrize("name", EXCESSES)
def test_what_a_process_at_its_limit_held_is_free_one_step_after_its_end(name: str) -> None:
    bench = Bench()
    bad = bench.client(LIMITS)
    held = Chat(bad, PROMPT)
    held.start()
    bench.step()
    EXCESSES[name][0](bad)
    bench.settle()
    bench.hub.send([m.ProcessEnded(bad.number)], [])
    bench.step()
    state = bench.state
    assert state.pool.num_free == state.pool.capacity
    assert not (state.processes or state.active or state.expected or state.computing or state.turns)
    assert not bench.engine.launcher.rings._slabs


def test_a_process_that_ends_amid_waves_is_gone_after_one() -> None:
    bench = Bench(overlap=True)
    dying = [Chat(bench.client(), [number + 1, *PROMPT]) for number in range(4)]
    good = Chat(bench.client(), PROMPT)
    for chat in [*dying, good]:
        chat.start()
        chat.run(6)
    for _ in range(3):
        bench.step()
    for chat in dying:
        bench.hub.send([m.ProcessEnded(chat.client.number)], [])
    bench.step()
    pool = bench.state.pool
    assert pool.num_free == pool.capacity - good.client.process.pages
    bench.settle()
    assert good.tokens == EXPECTED[:7]
