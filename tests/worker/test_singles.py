"""Single fires, which a wave treats as columns: what they do, and what is left when one of them
turns out to be none."""

from __future__ import annotations

from array import array

import pytest

from ipc import messages as m
from ipc.types import DType, Operand, PassSpec, Placement
from tests.worker.bench import (
    Bench,
    Chat,
    as_cell,
    best,
    greedy_tokens,
    logits,
    program,
)
from worker.eta.executor import CompiledProgram
from worker.singles import Singles

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9], [1, 2, 3, 4]]
EXPECTED = [greedy_tokens(prompt, 14) for prompt in PROMPTS]


@pytest.fixture(params=[(False, False), (True, False), (True, True)], ids=["", "overlap", "stay"])
def bench(request: pytest.FixtureRequest) -> Bench:
    overlap, tokens_stay = request.param
    return Bench(overlap=overlap, tokens_stay=tokens_stay)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many single fires each group had."""
    counts: list[int] = []
    commit = Singles.commit

    def counted(self, group, *rest):
        counts.append(len(group.singles))
        return commit(self, group, *rest)

    monkeypatch.setattr(Singles, "commit", counted)
    return counts


def _started(bench: Bench, make=Chat) -> list[Chat]:
    chats = [make(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
    bench.settle()
    return chats


def test_decodes_of_a_wave_are_one_column(bench: Bench, columns: list[int]) -> None:
    chats = _started(bench)
    for chat in chats:
        chat.run(6)
    bench.settle()
    assert columns == [4] * 6
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]


def test_decodes_that_are_submitted_one_by_one_are_columns_too(
    bench: Bench, columns: list[int]
) -> None:
    chats = _started(bench)
    for _ in range(5):
        for chat in chats:
            chat.client.submit(chat.pipeline, chat.decode)
        bench.settle()
    assert columns == [4] * 5
    assert [chat.tokens for chat in chats] == [tokens[:6] for tokens in EXPECTED]
    assert all(chat.client.process.queued == 0 for chat in chats)


def test_a_column_tells_watched_channels_their_cells(bench: Bench) -> None:
    chats = _started(bench)
    out = {}
    for chat in chats[:2]:
        client, channel = chat.client, chat.client.channel(capacity=20)
        client.say(m.Watch(channel))

        def both(b):
            token = b.add("reduce_argmax", (logits(b),))
            b.put(0, as_cell(b, token))
            b.put(1, as_cell(b, token))
            return [token]

        stage = client.stage(program(both), chat.token, channel)
        client.run(chat.pipeline, client.define_pass(chat.token, [chat.set], epilogue=stage), 5)
        out[client.number] = channel
    for chat in chats[2:]:
        chat.run(5)
    bench.settle()
    for chat, tokens in zip(chats, EXPECTED, strict=True):
        assert chat.tokens == tokens[:6]
        cells = [event.cells for event in chat.client.fired()[1:]]
        channel = out.get(chat.client.number)
        values = [] if channel is None else [array("i", [t]).tobytes() for t in tokens[1:6]]
        assert cells == [((channel, value),) for value in values] or not any(cells)


class FactorChat(Chat):
    """Decodes with a constant of its own in the epilogue: so one instance can be told apart."""

    def __post_init__(self) -> None:
        super().__post_init__()

        def build(b):
            factor = b.add("constant", (), {"dtype": DType.f32, "shape": ()})
            token = b.add("reduce_argmax", (b.add("mul", (logits(b), factor)),))
            b.put(0, as_cell(b, token))
            return [token]

        self.factors = program(build)
        self.decode = self._with(1.0)

    def _with(self, factor: float) -> int:
        constants = array("f", [factor]).tobytes()
        stage = self.client.stage(self.factors, self.token, constants=constants)
        return self.client.define_pass(self.token, [self.set], epilogue=stage)


@pytest.mark.parametrize("delivered", range(7))
def test_when_one_of_a_column_fails_the_others_run_on_and_can_be_stopped_anywhere(
    bench: Bench, delivered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CompiledProgram.run

    def touchy(self, count, fronts, outputs, constants, earlier):
        if any((constant == 13.0).any() for constant in constants):
            raise RuntimeError("unlucky")
        return run(self, count, fronts, outputs, constants, earlier)

    monkeypatch.setattr(CompiledProgram, "run", touchy)
    bad, *good = _started(bench, FactorChat)
    first = [chat.run(8) for chat in good]
    bench.step()
    bench.step()
    unlucky = bad._with(13.0)
    bad.client.submit(bad.pipeline, unlucky)
    bench.settle()
    (failed,) = bad.client.failures()
    assert "unlucky" in failed.failure.message
    assert [chat.tokens for chat in good] == [tokens[:7] for tokens in EXPECTED[1:]]
    for chat, prompt, seq in zip(good, PROMPTS[1:], first, strict=True):
        chat.client.say(m.Stop(chat.pipeline, seq + delivered - 1))
        bench.settle()
        assert chat.client.length(chat.set) == len(prompt) + delivered
        assert chat.client.process.channels[chat.token].held == 1
        chat.client.events.clear()
        chat.run(5)
    bench.settle()
    for chat, tokens in zip(good, EXPECTED[1:], strict=True):
        assert chat.tokens == tokens[delivered + 1 : delivered + 6]


@pytest.mark.parametrize("delivered", range(7))
def test_an_absent_row_in_mid_run_is_undone_like_the_fires_before_it(
    bench: Bench, delivered: int
) -> None:
    client = bench.client()
    feed, held, pipeline = client.channel(capacity=9), client.working_set(), client.pipeline()
    pass_id = client.define_pass(feed, [held], epilogue=client.stage(best()))
    ids = [4, 7, 1, -1, 8, 2]
    for token in ids[:3]:
        client.put(feed, [token])
    first = client.run(pipeline, pass_id, 6)
    bench.settle()
    for token in ids[3:]:
        client.put(feed, [token])
    bench.settle()
    assert client.length(held) == 5
    client.say(m.Stop(pipeline, first + delivered - 1))
    bench.settle()
    assert client.length(held) == sum(token >= 0 for token in ids[:delivered])
    channel = client.process.channels[feed]
    assert (channel.taken, channel.written) == (delivered, len(ids))


@pytest.mark.parametrize("delivered", range(5))
def test_the_first_fire_of_a_run_freezes_a_tail_and_a_stop_thaws_it(
    bench: Bench, delivered: int
) -> None:
    chat = Chat(bench.client(), PROMPTS[0])
    client, prompt = chat.client, PROMPTS[0]
    places = Operand(tuple(range(len(prompt))))
    client.say(m.Reserve(chat.set, len(prompt)))
    stage = client.stage(best())
    client.say(
        m.DefinePass(
            PassSpec(
                70,
                len(prompt),
                Operand(tuple(prompt)),
                (0, len(prompt)),
                (chat.set,),
                (len(prompt) - 1,),
                (1,),
                epilogue=stage,
                has_results=True,
                placement=Placement(places, places, Operand((len(prompt),))),
            )  # fmt: skip
        )
    )
    client.submit(chat.pipeline, 70)
    bench.settle()
    client.put(chat.token, EXPECTED[0][:1])
    first = chat.run(4)
    bench.settle()
    fired = client.fired()[1:]
    assert chat.tokens == EXPECTED[0][:5]
    assert [event.frozen for event in fired] == [(len(prompt) + 1,), (), (), ()]
    client.say(m.Stop(chat.pipeline, first + delivered - 1))
    bench.settle()
    held = client.process.working_sets[chat.set]
    assert held.length == len(prompt) + delivered
    assert held.frozen == (held.length if delivered else 0)


def test_rows_of_an_undone_run_are_not_found_by_others(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPTS[0])
    chat.start()
    first = chat.run(6)
    bench.settle()
    chat.client.say(m.Stop(chat.pipeline, first - 1))
    bench.settle()
    history = chat.client.process.working_sets[chat.set].history
    assert history.length == len(PROMPTS[0])
    again = Chat(bench.client(), PROMPTS[0] + EXPECTED[0][:1])
    again.start()
    again.run(6)
    bench.settle()
    assert again.tokens == EXPECTED[0][1:8]
