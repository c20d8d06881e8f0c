"""Memory pressure: sequences go to host memory and come back, and nobody's tokens change."""

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import Limits
from tests.worker.bench import PAGE_SIZE, Bench, Chat, greedy_tokens

LENGTH = 22  # of a whole sequence: six pages


def prompts(count: int) -> list[list[int]]:
    return [[number + 1, 2 * number + 1, *range(1, 9)] for number in range(count)]


def run_all(bench: Bench, chats: list[Chat], count: int) -> None:
    """Each chat decodes `count` tokens, with credits as its host sees tokens."""
    given = {id(chat): 6 for chat in chats}
    for chat in chats:
        chat.start()
        chat.run(count - 1, credits=6)
    for _ in range(3000):
        bench.step()
        for chat in chats:
            more = len(chat.tokens) - 1 + 6 - given[id(chat)]
            if more > 0 and given[id(chat)] < count - 1:
                chat.client.say(m.Credit(chat.pipeline, more))
                given[id(chat)] += more
        if all(len(chat.tokens) == count for chat in chats):
            return
    missing = [count - len(chat.tokens) for chat in chats]
    raise AssertionError(f"tokens still missing: {missing}; {bench.engine.scheduler.waiting}")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("processes", [1, 3, 12])
def test_three_times_the_pool_finish_with_the_tokens_of_a_large_one(
    processes: int, overlap: bool
) -> None:
    bench = Bench(num_pages=25, tenure_waves=4, idle_waves=2, row_budget=16, overlap=overlap)
    clients = [bench.client() for _ in range(processes)]
    chats = [Chat(clients[i % processes], p) for i, p in enumerate(prompts(12))]
    run_all(bench, chats, LENGTH - 9)  # 12 sequences of six pages, in 24 pages
    for chat, prompt in zip(chats, prompts(12)):
        assert chat.tokens == greedy_tokens(prompt, LENGTH - 9)
    assert not any(client.failures() for client in clients)
    for number in list(bench.clients):
        bench.hub.send([m.ProcessEnded(number)], [])
    bench.settle()
    assert bench.state.swap.num_used == 0
    assert bench.engine.launcher.swap_space.num_pages == 0
    assert bench.state.pool.num_free == bench.state.pool.capacity


def fill(bench: Bench, count: int, first: int = 40) -> list[Chat]:
    """Sequences of four pages each, that nothing is accepted for."""
    chats = [Chat(bench.client(), [first + number] * 15) for number in range(count)]
    for chat in chats:
        chat.start()
        bench.settle()
    return chats


def suspended(chats: list[Chat]) -> list[bool]:
    return [c.client.process.working_sets[c.set].saved is not None for c in chats]


def test_cached_pages_go_before_any_sequence() -> None:
    bench = Bench(num_pages=17)
    chats = fill(bench, 3)
    bench.hub.send([m.ProcessEnded(chats[0].client.number)], [])
    chats = chats[1:] + fill(bench, 2, first=50)
    assert suspended(chats) == [False] * 4
    assert bench.state.pool.num_free == 0


def test_a_parked_sequence_goes_first_and_comes_back_with_its_next_submit() -> None:
    bench = Bench(num_pages=17)
    chats = fill(bench, 4)
    chats[2].client.say(m.Park(chats[2].pipeline))
    chats += fill(bench, 1, first=50)
    assert suspended(chats) == [False, False, True, False, False]
    chats[2].run(3)
    bench.settle()
    assert chats[2].tokens == greedy_tokens(chats[2].prompt, 4)
    assert suspended(chats)[2] is False


def test_of_idle_sequences_the_one_used_longest_ago_goes() -> None:
    bench = Bench(num_pages=17, idle_waves=1)
    chats = fill(bench, 4)
    chats[0].run(1)
    bench.settle()
    chats += fill(bench, 1, first=50)
    assert suspended(chats) == [False, True, False, False, False]


def test_a_fork_of_a_suspended_sequence_shares_what_is_saved() -> None:
    bench = Bench(num_pages=17)
    chats = fill(bench, 4)
    chat = chats[0]
    chat.client.say(m.Park(chat.pipeline))
    fill(bench, 1, first=50)
    assert suspended(chats)[0]
    used = bench.state.swap.num_used
    child = chat.client.fork(chat.set, chat.pipeline)
    bench.settle()
    assert bench.state.swap.num_used == used
    chat.client.say(m.DropWorkingSet(chat.set))
    bench.settle()
    assert bench.state.swap.num_used == used
    number = chat.client.define_pass(chat.token, [child], epilogue=None)
    chat.client.submit(chat.pipeline, number)
    bench.settle()
    assert chat.client.length(child) == 16
    assert bench.state.swap.num_used == 0 or suspended(chats[1:]).count(True)


def test_siblings_that_were_suspended_share_their_pages_again() -> None:
    """Two forks of four pages in common: twice their pages would not fit."""
    bench = Bench(num_pages=13, prefix_cache=False)
    chat = fill(bench, 1)[0]
    children = [chat.client.fork(chat.set, chat.pipeline) for _ in range(2)]
    chat.client.say(m.DropWorkingSet(chat.set), m.Park(chat.pipeline))
    bench.settle()
    other = Chat(bench.client(), [50] * 44)
    other.start()
    bench.settle()
    held = [chat.client.process.working_sets[child] for child in children]
    assert all(working_set.saved for working_set in held)
    assert bench.state.swap.num_used == 5  # three full pages, and a tail each
    bench.hub.send([m.ProcessEnded(other.client.number)], [])
    tokens = [1, 2]
    number = chat.client.define_pass(tokens, children, indptr=[0, 1, 2], epilogue=None)
    chat.client.submit(chat.pipeline, number)
    bench.settle()
    assert held[0].pages[:3] == held[1].pages[:3]
    assert chat.client.process.pages == 5


def test_a_stop_reaches_a_suspended_sequence() -> None:
    bench = Bench(num_pages=9, idle_waves=1)
    chat = Chat(bench.client(), [40] * 6)
    chat.start()
    first = chat.run(9, credits=6)
    bench.settle()
    other = Chat(bench.client(), [50] * 25)
    other.start()
    bench.settle()
    assert suspended([chat]) == [True]
    chat.client.say(m.Stop(chat.pipeline, first))
    chat.client.submit(chat.pipeline, chat.decode)
    bench.settle()
    assert chat.client.length(chat.set) == 8
    expected = greedy_tokens([40] * 6, 3)
    assert [*chat.tokens[:2], chat.tokens[-1]] == expected


def test_a_full_swap_fails_the_youngest_for_want_of_memory() -> None:
    bench = Bench(num_pages=9, swap_pages=2, prefix_cache=False)
    client = bench.client()
    chats = [Chat(client, [number] * 8) for number in range(40, 44)]
    for chat in chats:
        chat.start()
    bench.settle()
    for chat in chats:
        chat.run(6)
    bench.settle()
    (failed, *_) = client.failures()
    assert failed.failure.code == ErrorCode.OUT_OF_MEMORY
    assert failed.pipeline == chats[3].pipeline


def test_a_higher_priority_takes_the_pages_of_a_lower_one() -> None:
    bench = Bench(num_pages=9)
    low = Chat(bench.client(), [40] * 20)
    low.start()
    low.run(12)
    bench.step()
    chat = Chat(bench.client(priority=1), [50] * 20)
    chat.start()
    bench.step()
    assert suspended([low]) == [False]  # it was in progress already
    bench.step()
    assert suspended([low]) == [True]
    bench.settle()
    assert chat.tokens == greedy_tokens([50] * 20, 1)


def test_pages_that_only_others_hold_do_not_count_against_the_limit() -> None:
    bench = Bench(num_pages=33)
    first = Chat(bench.client(Limits(pages=6)), [40] * 16)
    first.start()
    bench.settle()
    second = Chat(bench.client(), [40] * 16)  # finds the pages of the first
    second.start()
    bench.settle()
    first.client.say(m.DropWorkingSet(first.set))
    third = Chat(first.client, [41] * 18)
    third.start()
    bench.settle()
    assert not first.client.failures()
    assert third.tokens == greedy_tokens([41] * 18, 1)
    assert bench.state.pool.page_size == PAGE_SIZE
