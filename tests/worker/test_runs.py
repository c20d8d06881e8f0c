"""Runs: the device goes ahead of the host, and a stop leaves exactly what the host has seen."""

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from tests.worker.bench import Bench, Chat, greedy_tokens

PROMPT = [3, 1, 4, 1, 5, 9, 2]
EXPECTED = greedy_tokens(PROMPT, 16)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_run_gives_the_tokens_of_step_by_step_decoding(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    chat.run(5)
    bench.settle()
    assert chat.tokens == EXPECTED[:6]


def test_a_run_starts_no_more_fires_than_it_has_credits(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    chat.run(10, credits=3)
    bench.settle()
    assert len(chat.tokens) == 1 + 3
    chat.client.say(m.Credit(chat.pipeline, 3))
    bench.settle()
    assert chat.tokens == EXPECTED[:7]


@pytest.mark.parametrize("delivered", range(7))
@pytest.mark.parametrize("budget", [6, 20])
def test_a_stop_anywhere_in_the_window_equals_a_run_that_went_no_further(
    bench: Bench, delivered: int, budget: int
) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(budget)
    bench.settle()  # the device is as far ahead as it may be
    chat.client.say(m.Stop(chat.pipeline, first + delivered - 1))
    bench.settle()
    process = chat.client.process
    assert chat.client.length(chat.set) == len(PROMPT) + delivered
    assert process.pages == bench.state.pool.pages_for(len(PROMPT) + delivered)
    assert process.channels[chat.token].held == 1
    chat.client.events.clear()
    chat.run(6)
    bench.settle()
    assert chat.tokens == EXPECTED[delivered + 1 : delivered + 7]


def test_a_stop_before_anything_ran_takes_the_run_back(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(9)
    chat.client.say(m.Stop(chat.pipeline, first - 1))
    bench.settle()
    assert chat.tokens == EXPECTED[:1]
    assert chat.client.process.queued == 0


def test_a_stop_after_credits_may_name_every_fire_that_was_not_credited(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(30, credits=2)
    bench.settle()
    # The host's rings allowed only two fires at first; all of them are delivered now.
    chat.client.say(m.Credit(chat.pipeline, 6))
    bench.settle()
    assert len(chat.tokens) == 1 + 8
    chat.client.say(m.Stop(chat.pipeline, first + 1))
    bench.settle()
    assert chat.client.length(chat.set) == len(PROMPT) + 2


def test_a_stop_of_fires_that_the_host_had_long_ago_ends_the_process(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(30)
    bench.settle()
    chat.client.say(m.Credit(chat.pipeline, 6))
    bench.settle()
    chat.client.say(m.Stop(chat.pipeline, first))
    bench.settle()
    assert chat.client.goodbye().failure.code == ErrorCode.INVALID_COMMAND
    assert bench.state.pool.num_free == bench.state.pool.capacity


def test_a_stop_before_the_failing_fire_leaves_the_pipeline_sound() -> None:
    bench = Bench(context=len(PROMPT) + 3)
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(20)
    bench.settle()
    (failed,) = chat.client.failures()
    assert failed.failure.code == ErrorCode.CONTEXT_LENGTH
    assert failed.seq == first + 3
    chat.client.say(m.Stop(chat.pipeline, first))  # the host stopped after one fire
    chat.client.events.clear()
    chat.client.submit(chat.pipeline, chat.decode)
    bench.settle()
    assert chat.tokens == [EXPECTED[2]]


def test_submits_after_a_run_wait_for_its_end(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    chat.run(8, credits=4)
    chat.client.submit(chat.pipeline, chat.decode)
    bench.settle()
    assert len(chat.tokens) == 5
    chat.client.say(m.Credit(chat.pipeline, 4))
    bench.settle()
    assert chat.tokens == EXPECTED[:10]


def test_a_stopped_run_gives_way_to_what_waits_behind_it(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(8, credits=4)
    bench.settle()
    chat.client.say(m.Stop(chat.pipeline, first + 2), m.ClosePipeline(chat.pipeline))
    bench.settle()
    assert chat.client.length(chat.set) == len(PROMPT) + 3
    assert chat.pipeline not in chat.client.process.pipelines


def test_a_watched_channel_ends_where_the_run_was_stopped(bench: Bench) -> None:
    from tests.worker.bench import as_cell, logits, program

    client = bench.client()
    token, out = client.channel(), client.channel()

    def both(b):
        t = b.add("reduce_argmax", (logits(b),))
        b.put(0, as_cell(b, t))
        b.put(1, as_cell(b, t))
        return [t]

    stage = client.stage(program(both), token, out)
    held, pipeline = client.working_set(), client.pipeline()
    prefill = client.define_pass(PROMPT, [held], epilogue=stage)
    decode = client.define_pass(token, [held], epilogue=stage)
    client.say(m.Watch(out))
    client.submit(pipeline, prefill)
    first = client.run(pipeline, decode, 20)
    bench.settle()
    fired = client.fired()
    assert len(fired) == 7
    assert all(event.cells == ((out, event.results[0]),) for event in fired)
    client.say(m.Stop(pipeline, first + 1))
    bench.settle()
    channel = client.process.channels[out]
    assert (channel.written, channel.taken) == (3, 3)
    client.events.clear()
    client.submit(pipeline, decode)
    bench.settle()
    assert client.fired()[0].cells[0][1] == client.fired()[0].results[0]
    assert client.tokens() == [EXPECTED[3]]
