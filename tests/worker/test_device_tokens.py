"""Token ids that the device makes: which rows are there is known when they have been read."""

from array import array

import pytest

from ipc.errors import ErrorCode
from ipc.types import DType, TensorType
from tests.worker.bench import (
    Bench,
    Chat,
    greedy_tokens,
    program,
    raw_logits,
)
from worker.singles import Singles

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1], [8], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7, 4, 9]]
EXPECTED = [greedy_tokens(prompt, 8) for prompt in PROMPTS]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _put_constant(values: list[int]):
    """Puts host-chosen ids, so that the engine cannot know them."""
    kind = TensorType(DType.i32, (len(values),))

    def build(b):
        ids = b.add("constant", (), {"dtype": kind.dtype, "shape": kind.shape})
        b.put(0, ids)
        return []

    return program(build), array("i", values).tobytes()


def _fed_by_device(bench: Bench, values: list[int], readout: list[int], where: str):
    """A pass whose ids come from another pass's put, or from its own prologue's."""
    client = bench.client()
    channel = client.channel(TensorType(DType.i32, (len(values),)))
    code, pool = _put_constant(values)
    stage = client.stage(code, channel, constants=pool)
    held, pipeline = client.working_set(), client.pipeline()
    feeder = {"prologue": stage} if where == "prologue" else {}
    if where == "ring":
        first = client.define_pass([1], [client.working_set()], epilogue=stage, has_results=False)
        client.submit(pipeline, first)
    main = client.define_pass(
        channel, [held], num_rows=len(values), readout=[readout],
        epilogue=client.stage(raw_logits()), **feeder,
    )  # fmt: skip
    client.submit(pipeline, main)
    bench.settle()
    return client, held, pipeline


@pytest.mark.parametrize("stay", [False, True])
def test_the_host_may_keep_its_hands_off_ids_that_are_tokens_by_construction(
    stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tokens_stay=stay)
    read = []
    begin = Singles.begin

    def watched(self: Singles, fires: list) -> None:
        begin(self, fires)
        read.extend(fires if self.device_ids is None else ())

    monkeypatch.setattr(Singles, "begin", watched)
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(7, credits=6)
    bench.settle()
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]
    assert bool(read) is not stay
    # Other ids must be read, or a row could be placed where none is.
    client, held, _ = _fed_by_device(bench, [3, -1], [0], "ring")
    assert client.length(held) == 1


@pytest.mark.parametrize("where", ["ring", "prologue"])
def test_absent_rows_take_no_slot_and_give_zeros(bench: Bench, where: str) -> None:
    client, held, _ = _fed_by_device(bench, [3, -1, 1, 4, -1, -1], [0, 1, 3, 5], where)
    fired = client.fired()[-1]
    assert fired.appended == (3,)
    assert client.length(held) == 3
    got = memoryview(fired.results[0]).cast("f", (4, 64))
    assert set(got.tolist()[1]) == set(got.tolist()[3]) == {0.0}
    plain = Bench()
    other = plain.client()
    stage = other.stage(raw_logits())
    readout = [[0, 2]]
    pass_id = other.define_pass([3, 1, 4], [other.working_set()], readout=readout, epilogue=stage)
    other.submit(other.pipeline(), pass_id)
    plain.settle()
    expected = memoryview(other.fired()[0].results[0]).cast("f", (2, 64)).tolist()
    assert [got.tolist()[0], got.tolist()[2]] == expected


def test_absent_rows_give_zeros_whatever_the_output_head_makes_of_zeros(bench: Bench) -> None:
    model = bench.engine.launcher.model
    head = model.logits
    model.logits = lambda hidden: head(hidden) + 1.0
    client, _, _ = _fed_by_device(bench, [3, -1], [0, 1], "ring")
    got = memoryview(client.fired()[-1].results[0]).cast("f", (2, 64)).tolist()
    assert set(got[1]) == {0.0} and set(got[0]) != {0.0}


def test_absent_rows_do_not_shift_the_rows_of_others_in_the_wave(bench: Bench) -> None:
    client, held, pipeline = _fed_by_device(bench, [3, -1, 1, -1], [0, 2], "prologue")
    chat = Chat(bench.client(), PROMPTS[1])
    client.submit(pipeline, 0)  # its rows come before those of the chat
    chat.start()
    bench.settle()
    assert client.length(held) == 4
    assert chat.tokens == EXPECTED[1][:1]


def test_a_pass_of_absent_rows_only_computes_nothing_but_still_fires(bench: Bench) -> None:
    client, held, _ = _fed_by_device(bench, [-1, -1], [1], "ring")
    assert client.fired()[-1].appended == (0,)
    assert client.length(held) == 0
    assert set(client.fired()[-1].results[0]) == {0}


@pytest.mark.parametrize("bad", [64, -2])
def test_a_device_made_id_outside_the_vocabulary_fails_its_pipeline_alone(
    bench: Bench, bad: int
) -> None:
    chat = Chat(bench.client(), PROMPTS[0])
    chat.start()
    client, held, pipeline = _fed_by_device(bench, [3, bad], [1], "ring")
    (failed,) = client.failures()
    assert failed.failure.code == ErrorCode.TOKEN_RANGE
    assert str(bad) in failed.failure.message
    assert client.length(held) == 0
    chat.run(6)
    bench.settle()
    assert chat.tokens == EXPECTED[0][:7]


def test_counts_are_reported_only_where_the_host_cannot_know_them(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPTS[0])
    chat.start()
    chat.run(3)
    bench.settle()
    assert [event.appended for event in chat.client.fired()] == [()] * 4


def test_the_context_ends_a_pipeline_and_not_the_engine() -> None:
    bench = Bench(context=len(PROMPTS[0]) + 2)
    chat, other = Chat(bench.client(), PROMPTS[0]), Chat(bench.client(), PROMPTS[1])
    for each in (chat, other):
        each.start()
        each.run(6)
    bench.settle()
    assert len(chat.tokens) == 3
    assert chat.client.failures()[0].failure.code == ErrorCode.CONTEXT_LENGTH
    assert other.tokens == EXPECTED[1][:7]
