"""The prefix cache: what is found, what never is, and that nothing but time and memory changes."""

from array import array
from itertools import pairwise

import pytest

from ipc import messages as m
from ipc.types import DType, TensorType
from tests.worker.bench import PAGE_SIZE, Bench, Chat, Client, best, greedy_tokens, raw_logits

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6]  # five pages and a row
FULL = len(PROMPT) // PAGE_SIZE * PAGE_SIZE
EXPECTED = greedy_tokens(PROMPT, 8)


class Rows:
    """Counts the rows that the model computes."""

    def __init__(self, bench: Bench) -> None:
        self.count = 0
        model, self._forward = bench.engine.launcher.model, bench.engine.launcher.model.forward
        model.forward = self

    def __call__(self, batch):
        self.count += batch.num_rows
        return self._forward(batch)


def ask(client: Client, tokens: list[int] = PROMPT, count: int = 4) -> Chat:
    chat = Chat(client, tokens)
    chat.start()
    if count > 1:
        chat.run(count - 1)
    client.bench.settle()
    assert chat.tokens == (EXPECTED if tokens == PROMPT else greedy_tokens(tokens, count))[:count]
    return chat


def results(client: Client) -> list[int]:
    """The results of those fires that have one."""
    return [array("i", event.results[0])[0] for event in client.fired() if event.results]


def cached(chat: Chat) -> list[int]:
    return [sum(event.cached) for event in chat.client.fired(chat.pipeline)]


@pytest.mark.parametrize("same_process", [True, False])
def test_an_equal_prompt_is_computed_once(same_process: bool) -> None:
    bench = Bench()
    rows = Rows(bench)
    first = ask(bench.client())
    assert (rows.count, cached(first)) == (len(PROMPT) + 3, [0, 0, 0, 0])
    second = ask(first.client if same_process else bench.client())
    assert cached(second) == [FULL, 0, 0, 0]
    assert rows.count == len(PROMPT) + 3 + len(PROMPT) - FULL + 3
    assert second.client.process.working_sets[second.set].cached == FULL


def test_a_hit_gives_the_same_bits() -> None:
    bench, logits = Bench(), []
    for _ in range(2):
        client = bench.client()
        pipeline, stage = client.pipeline(), client.stage(raw_logits())
        for tokens in (PROMPT, [7]):
            client.submit(pipeline, client.define_pass(tokens, [0], epilogue=stage))
        client.commands.insert(0, m.OpenWorkingSet(0))
        bench.settle()
        logits.append([event.results for event in client.fired()])
    assert logits[0] == logits[1]


def test_pages_of_a_process_that_has_ended_are_found() -> None:
    bench = Bench()
    chat = ask(bench.client())
    bench.hub.send([m.ProcessEnded(chat.client.number)], [])
    bench.settle()
    assert bench.state.pool.num_free == bench.state.pool.capacity
    assert bench.state.pool.num_cached > 0
    assert cached(ask(bench.client()))[0] == FULL


def test_only_the_common_prefix_is_found() -> None:
    bench = Bench()
    ask(bench.client())
    other = [*PROMPT[:9], 60, *PROMPT[10:]]
    assert cached(ask(bench.client(), other))[0] == 9 // PAGE_SIZE * PAGE_SIZE


def test_equal_pages_after_other_ones_are_not_found() -> None:
    bench = Bench()
    ask(bench.client())
    assert cached(ask(bench.client(), [60, *PROMPT[1:]]))[0] == 0


def test_nothing_is_found_under_another_salt() -> None:
    bench = Bench()
    for salt, expected in (("a", 0), ("b", 0), ("", 0), ("a", FULL), ("b", FULL)):
        assert cached(ask(bench.client(salt=salt)))[0] == expected, salt


def test_rows_that_are_read_out_are_computed() -> None:
    bench = Bench()
    ask(bench.client())
    client = bench.client()
    pipeline, ws = client.pipeline(), client.working_set()
    stage = client.stage(best())
    number = client.define_pass(PROMPT, [ws], readout=[[6]], epilogue=stage)
    client.submit(pipeline, number)
    bench.settle()
    (event,) = client.fired()
    assert event.cached == (4,)  # row 6 lies on the second page
    assert results(client) == greedy_tokens(PROMPT[:7], 1)


def test_a_pass_without_epilogue_may_come_from_the_cache_altogether() -> None:
    bench = Bench()
    ask(bench.client())
    rows, client = Rows(bench), bench.client()
    pipeline, ws = client.pipeline(), client.working_set()
    client.submit(pipeline, client.define_pass(PROMPT[:FULL], [ws]))
    stage = client.stage(best())
    bench.settle()
    assert (rows.count, client.length(ws)) == (0, FULL)
    client.submit(pipeline, client.define_pass(PROMPT[FULL:], [ws], epilogue=stage))
    bench.settle()
    assert [event.cached for event in client.fired()] == [(FULL,), ()]
    assert results(client) == EXPECTED[:1]


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_replayed_conversation_is_found_with_what_the_device_made(
    stay: bool, overlap: bool
) -> None:
    bench = Bench(tokens_stay=stay, overlap=overlap)
    ask(bench.client(), count=7)
    replayed = [*PROMPT, *EXPECTED[:6], 1]
    assert cached(ask(bench.client(), replayed, 2))[0] == 24


def test_a_prompt_in_parts_is_found_across_partly_filled_pages() -> None:
    bench = Bench()
    ask(bench.client())
    client = bench.client()
    pipeline, ws = client.pipeline(), client.working_set()
    rows = Rows(bench)
    for start, end in pairwise((0, 6, 15, len(PROMPT))):
        stage = client.stage(best()) if end == len(PROMPT) else None
        number = client.define_pass(PROMPT[start:end], [ws], epilogue=stage)
        client.submit(pipeline, number)
    bench.settle()
    assert results(client) == EXPECTED[:1]
    assert rows.count == 2 + 3 + 1  # the ends of the parts
    # Slots 4 and 5 were computed, so the leading part that came from the cache ends there.
    assert [sum(event.cached) for event in client.fired()] == [4, 0, 0]


def test_equal_prompts_at_the_same_time_are_computed_once() -> None:
    bench = Bench(row_budget=8, min_shared=PAGE_SIZE)
    rows = Rows(bench)
    chats = [Chat(bench.client(), PROMPT) for _ in range(5)]
    for chat in chats:
        chat.start()
    bench.settle()
    assert [chat.tokens for chat in chats] == [EXPECTED[:1]] * 5
    assert rows.count == len(PROMPT) + 4 * (len(PROMPT) - FULL)


def test_who_waits_for_an_equal_prompt_goes_on_when_its_process_ends() -> None:
    bench = Bench(row_budget=8, min_shared=PAGE_SIZE)
    first, second = (Chat(bench.client(), PROMPT) for _ in range(2))
    first.start()
    bench.step()
    second.start()
    bench.step()
    assert "equal prompt" in " ".join(bench.engine.scheduler.waiting.values())
    bench.hub.send([m.ProcessEnded(first.client.number)], [])
    bench.settle()
    assert second.tokens == EXPECTED[:1]
    assert not bench.state.computing


def test_rows_of_a_channel_that_the_host_feeds_are_looked_up() -> None:
    bench = Bench()
    ask(bench.client())
    client = bench.client()
    cell = TensorType(DType.i32, (len(PROMPT),))
    channel = client.channel(cell, 1, PROMPT)
    pipeline, stage = client.pipeline(), client.stage(best())
    ws = client.working_set()
    number = client.define_pass(channel, [ws], num_rows=len(PROMPT), epilogue=stage)
    client.submit(pipeline, number)
    bench.settle()
    assert results(client) == EXPECTED[:1]
    assert client.fired()[0].cached == (FULL,)


def test_lanes_are_found_each_by_itself_and_absent_rows_are_no_matter() -> None:
    bench = Bench()
    ask(bench.client())
    client = bench.client()
    sets = [client.working_set() for _ in range(3)]
    other = [60, 61, 62]
    tokens = [*other, *PROMPT[:7], -1, -1, *PROMPT[7:], *PROMPT[:6]]
    ends = (0, 3, 5 + len(PROMPT), 11 + len(PROMPT))
    stage = client.stage(best(3))
    number = client.define_pass(tokens, sets, indptr=ends, epilogue=stage)
    client.submit(client.pipeline(), number)
    bench.settle()
    (event,) = client.fired()
    assert event.cached == (0, FULL, 4)
    best_tokens = [array("i", result)[0] for result in event.results]
    asked = (other, PROMPT, PROMPT[:6])
    assert best_tokens == [greedy_tokens(lane, 1)[0] for lane in asked]
    assert [client.length(ws) for ws in sets] == [3, len(PROMPT), 6]


def test_a_child_inherits_what_came_from_the_cache() -> None:
    bench = Bench()
    ask(bench.client())
    chat = ask(bench.client())
    child = chat.client.fork(chat.set, chat.pipeline)
    bench.settle()
    assert chat.client.process.working_sets[child].cached == FULL


def test_rows_that_were_undone_do_not_spoil_a_page_that_can_be_found() -> None:
    """Six fires fill the last page; five are undone, and other rows take their slots."""
    bench = Bench()
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    first = chat.run(9, credits=6)
    bench.settle()
    chat.client.say(m.Stop(chat.pipeline, first))
    client, stage = chat.client, chat.client.stage(best())
    other = [40, 41, 42, 43, 44]
    client.submit(chat.pipeline, client.define_pass(other, [chat.set], epilogue=stage))
    bench.settle()
    assert results(client)[-1] == greedy_tokens([*PROMPT, EXPECTED[0], *other], 1)[0]
    replayed = [*PROMPT, *EXPECTED[:6]]
    ask(bench.client(), replayed, 2)
    ask(bench.client(), [*PROMPT, EXPECTED[0], *other, 1], 2)


def test_pages_are_evicted_oldest_first_and_only_when_they_are_needed() -> None:
    bench = Bench(num_pages=17)
    for number in (40, 50):
        chat = ask(bench.client(), [number] * 9, 1)
        bench.hub.send([m.ProcessEnded(chat.client.number)], [])
        bench.settle()
    assert bench.state.pool.num_cached == 4
    chat = ask(bench.client(), [30] * 54, 1)  # takes 14 of 16 pages
    bench.hub.send([m.ProcessEnded(chat.client.number)], [])
    assert cached(ask(bench.client(), [50] * 9, 1)) == [8]
    assert cached(ask(bench.client(), [40] * 9, 1)) == [0]


def test_a_run_of_host_known_rows_hits_too_and_can_be_stopped() -> None:
    bench = Bench()
    for budget in (6, 6):
        client = bench.client()
        pipeline, ws = client.pipeline(), client.working_set()
        number = client.define_pass([5, 6, 7, 8], [ws])
        first = client.run(pipeline, number, budget, credits=6)
        bench.settle()
        client.say(m.Stop(pipeline, first + 2))
        stage = client.stage(best())
        client.submit(pipeline, client.define_pass([9], [ws], epilogue=stage))
        bench.settle()
        assert results(client) == greedy_tokens([5, 6, 7, 8] * 3 + [9], 1)
    assert [sum(event.cached) for event in client.fired()][:3] == [4, 4, 4]
    assert client.process.working_sets[ws].cached == 12
