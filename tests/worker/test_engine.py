"""The whole engine on the tiny model: what a lane computes never depends on its company."""

from array import array

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import Limits
from tests.worker.bench import (
    Bench,
    Chat,
    best,
    greedy,
    greedy_tokens,
    raw_logits,
)

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1], [8], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7, 4, 9]]
EXPECTED = [greedy_tokens(prompt, 8) for prompt in PROMPTS]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_lanes_of_many_processes_compute_what_they_compute_alone(bench: Bench) -> None:
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(7, credits=6)
    bench.settle()
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]


def test_processes_that_start_at_different_times_share_waves(bench: Bench) -> None:
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(6)
        bench.step()
    bench.settle()
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]
    # Seven fires each; alone they would have taken 28 waves.
    assert bench.engine.scheduler.waves <= 7 + len(PROMPTS)


@pytest.mark.parametrize("budget", [4, 5, 8, 64])
def test_a_prompt_computes_the_same_in_chunks_and_whole(budget: int) -> None:
    bench = Bench(row_budget=budget, short_rows=2, min_chunk=1)
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(7, credits=6)
    bench.settle()
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]


def test_rows_read_out_in_earlier_chunks_are_those_of_one_pass() -> None:
    results = []
    for budget in (4, 64):
        bench = Bench(row_budget=budget, short_rows=1, min_chunk=1)
        client = bench.client()
        stage = client.stage(raw_logits())
        prompt, rows = PROMPTS[3], [0, 11, 3, 3, 12, 5]  # any order, repeats
        pass_id = client.define_pass(prompt, [client.working_set()], readout=[rows], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
        waves = bench.settle()
        results.append(client.fired()[0].results[0])
    assert waves == 1
    assert results[0] == results[1]
    assert len(results[0]) == len(rows) * 64 * 4


def test_several_lanes_of_one_pass_are_several_sequences(bench: Bench) -> None:
    client = bench.client()
    tokens = [token for prompt in PROMPTS for token in prompt]
    ends = [sum(map(len, PROMPTS[: i + 1])) for i in range(len(PROMPTS))]
    sets = [client.working_set() for _ in PROMPTS]
    stage = client.stage(best(lanes=4))
    pass_id = client.define_pass(tokens, sets, indptr=[0, *ends], epilogue=stage)
    client.submit(client.pipeline(), pass_id)
    bench.settle()
    got = [array("i", result)[0] for result in client.fired()[0].results]
    assert got == [tokens[0] for tokens in EXPECTED]
    assert [client.length(held) for held in sets] == [len(prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("shared", [0, 1, 4, 6, 8])
def test_a_fork_continues_as_if_it_had_replayed_its_parent(bench: Bench, shared: int) -> None:
    client = bench.client()
    stage, pipeline = client.stage(best()), client.pipeline()
    parent = client.working_set()
    if shared:
        client.submit(pipeline, client.define_pass(PROMPTS[0][:shared], [parent]))
    child = client.fork(parent, pipeline)
    for held, rest in ((parent, [11, 12, 13]), (child, PROMPTS[0][shared:])):
        client.submit(pipeline, client.define_pass(rest, [held], epilogue=stage))
    bench.settle()
    of_parent, of_child = [array("i", event.results[0])[0] for event in client.fired()[-2:]]
    assert of_parent == greedy_tokens(PROMPTS[0][:shared] + [11, 12, 13], 1)[0]
    assert of_child == EXPECTED[0][0]


def test_a_fork_of_a_fork_waits_for_both(bench: Bench) -> None:
    client = bench.client()
    stage, one, two = client.stage(best()), client.pipeline(), client.pipeline()
    root = client.working_set()
    client.submit(one, client.define_pass(PROMPTS[0][:5], [root]))
    child = client.fork(root, one)
    grandchild = client.fork(child, two)
    client.submit(two, client.define_pass(PROMPTS[0][5:], [grandchild], epilogue=stage))
    client.say(m.DropWorkingSet(root), m.DropWorkingSet(child))
    bench.settle()
    assert client.tokens(two) == EXPECTED[0][:1]
    assert client.process.pages == bench.state.pool.pages_for(len(PROMPTS[0]))


def test_dropping_a_set_frees_its_pages_after_its_accepted_fires(bench: Bench) -> None:
    chat = Chat(bench.client(), PROMPTS[3])
    chat.start()
    chat.client.submit(chat.pipeline, chat.decode)
    chat.client.say(m.DropWorkingSet(chat.set))
    bench.settle()
    assert chat.tokens == EXPECTED[3][:2]
    assert bench.state.pool.num_free == bench.state.pool.capacity
    assert not chat.client.process.live_sets


def test_an_ended_process_leaves_nothing_behind(bench: Bench) -> None:
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(40)
    bench.step()
    bench.step()
    for chat in chats:
        bench.hub.send([m.ProcessEnded(chat.client.number)], [])
    bench.settle()
    state = bench.state
    assert state.pool.num_free == state.pool.capacity
    assert not (state.processes or state.active or state.expected)
    assert not bench.engine.launcher.rings._slabs


@pytest.mark.parametrize("is_faulty", [False, True])
def test_a_process_that_ends_between_reports_is_in_the_next_one_alone(is_faulty: bool) -> None:
    bench = Bench(stats_interval=0.0)
    chat = Chat(bench.client(), PROMPTS[0])
    chat.start()
    chat.run(4)
    while len(chat.tokens) < 5:
        bench.step()
    bench.reports.clear()
    number = chat.client.number
    if is_faulty:
        bench.hub.send([], [(number, b"nonsense")])
    else:
        bench.hub.send([m.ProcessEnded(number)], [])
    bench.settle()
    bench.client()
    bench.settle()
    ended = [report.ended for report in bench.reports if report.ended]
    assert ended == [{number: (len(PROMPTS[0]) + 4, 5)}]
    assert all(number not in report.processes for report in bench.reports if report.ended)


# ---- memory


def test_ready_fires_wait_for_pages_and_go_on_when_another_process_ends() -> None:
    bench = Bench(num_pages=5, swap_pages=0)
    first, second = Chat(bench.client(), PROMPTS[3]), Chat(bench.client(), PROMPTS[0])
    first.start()
    bench.settle()
    second.start()
    bench.settle()
    assert second.tokens == [] and not second.client.failures()
    bench.hub.send([m.ProcessEnded(first.client.number)], [])
    bench.settle()
    assert second.tokens == EXPECTED[0][:1]


def test_memory_exhausted_for_good_fails_the_youngest_and_the_others_go_on() -> None:
    bench = Bench(num_pages=9, swap_pages=0, prefix_cache=False)
    client = bench.client()
    chats = [Chat(client, PROMPTS[3][:8]) for _ in range(4)]
    for chat in chats:
        chat.start()
    bench.settle()  # eight pages are held, and every set wants a third one
    for chat in chats:
        chat.run(6)
    bench.settle()
    failed = client.failures()
    assert failed[0].failure.code == ErrorCode.OUT_OF_MEMORY
    assert failed[0].pipeline == chats[3].pipeline


def test_a_process_may_hold_no_more_pages_than_its_limit(bench: Bench) -> None:
    chat = Chat(bench.client(Limits(pages=2)), PROMPTS[3])
    chat.start()
    bench.settle()
    failure = chat.client.failures()[0].failure
    assert (failure.code, failure.limit) == (ErrorCode.LIMIT, "pages")


# ---- the loop


def test_a_wave_costs_one_message_whatever_the_number_of_processes(bench: Bench) -> None:
    chats = [Chat(bench.client(), PROMPTS[i % 4]) for i in range(12)]
    bench.settle()
    sent = bench.engine.link.sent
    for chat in chats:
        chat.start()
        chat.run(6)
    waves = bench.settle()
    assert waves == 7
    assert bench.engine.link.sent - sent == waves


def test_submits_that_usually_follow_join_the_wave() -> None:
    bench = Bench(patience_floor=60.0)
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
    assert bench.step()
    arrived = iter(chats[1:])

    def wait(timeout: float) -> bool:
        """The hub's next message brings one more submit."""
        from ipc import codec

        chat = next(arrived)
        chat.client.submit(chat.pipeline, chat.decode)
        commands, chat.client.commands = chat.client.commands, []
        bench.hub.send([], [(chat.client.number, codec.encode_commands(commands))])
        return True

    bench.engine.link.wait = wait
    chats[0].client.submit(chats[0].pipeline, chats[0].decode)
    bench.step()
    assert bench.engine.scheduler.waves == 2
    assert [chat.tokens for chat in chats] == [tokens[:2] for tokens in EXPECTED]


def test_nobody_is_waited_for_who_parked_or_closed() -> None:
    bench = Bench(patience_floor=60.0)
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS[:3]]
    for chat in chats:
        chat.start()
    bench.step()
    chats[0].client.say(m.Park(chats[0].pipeline))
    chats[1].client.say(m.ClosePipeline(chats[1].pipeline))
    chats[2].client.submit(chats[2].pipeline, chats[2].decode)
    bench.step()
    assert chats[2].tokens == EXPECTED[2][:2]


def test_waves_launched_before_the_last_values_arrived_give_the_same() -> None:
    """As on a GPU: the next wave starts while values of the last one are still being copied, and
    sampled ids go from epilogue to embedding without the host."""
    bench = Bench(overlap=True, tokens_stay=True)
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(7, credits=6)
    bench.step()
    assert chats[0].tokens == []  # launched, not yet told
    bench.settle()
    assert [chat.tokens for chat in chats] == [tokens[:7] for tokens in EXPECTED]
    first = len(PROMPTS[0])
    chats[0].client.say(m.Stop(chats[0].pipeline, 3))
    bench.settle()
    assert chats[0].client.length(chats[0].set) == first + 3


def test_watching_a_channel_tells_of_launched_fires_before_their_cells() -> None:
    bench = Bench(overlap=True)
    chat = Chat(bench.client(), PROMPTS[0])
    out = chat.client.channel()
    stage = chat.client.stage(greedy(), out)
    pass_id = chat.client.define_pass(PROMPTS[1], [chat.client.working_set()], epilogue=stage)
    chat.client.submit(chat.pipeline, pass_id)
    bench.step()
    chat.client.say(m.Watch(out))
    bench.settle()
    fired, cells = chat.client.events
    assert fired.cells == () and cells.cells == fired.results
