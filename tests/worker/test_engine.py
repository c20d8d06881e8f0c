"""The whole engine on the tiny model: what a lane computes never depends on its company."""

from array import array

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.eta.graph import HELD
from ipc.types import DType, Limits, TensorType
from tests.worker.bench import (
    Bench,
    Chat,
    best,
    greedy,
    greedy_tokens,
    logits,
    program,
    raw_logits,
)
from worker.singles import Singles

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
        pass_id = client.define_pass(
            prompt, [client.working_set()], readout=[rows], epilogue=stage
        )
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


# ---- device-made tokens


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


# ---- programs


def test_programs_that_differ_in_a_constant_run_as_one_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(b):
        factor = b.add("constant", (), {"dtype": DType.f32, "shape": ()})
        return [b.add("mul", (b.add("reduce_max", (logits(b),)), factor))]

    from worker.eta.executor import CompiledProgram

    counts = []
    run = CompiledProgram.run

    def counted(self, count, *rest):
        counts.append(count)
        return run(self, count, *rest)

    monkeypatch.setattr(CompiledProgram, "run", counted)
    clients = []
    for factor in (1.0, 2.0, 2.0, -4.0):
        client = bench.client()
        stage = client.stage(program(build), constants=array("f", [factor]).tobytes())
        pass_id = client.define_pass(PROMPTS[1], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
        clients.append(client)
    bench.settle()
    values = [array("f", client.fired()[0].results[0])[0] for client in clients]
    assert counts == [4]
    assert values == [values[0], 2 * values[0], 2 * values[0], -4 * values[0]]


def test_a_kernel_that_raises_fails_the_guilty_instance_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worker.eta.executor import CompiledProgram

    run = CompiledProgram.run

    def touchy(self, count, fronts, outputs, constants, earlier):
        if any((constant == 13.0).any() for constant in constants):
            raise RuntimeError("unlucky")
        return run(self, count, fronts, outputs, constants, earlier)

    monkeypatch.setattr(CompiledProgram, "run", touchy)

    def build(b):
        factor = b.add("constant", (), {"dtype": DType.f32, "shape": ()})
        return [b.add("mul", (b.add("reduce_max", (logits(b),)), factor))]

    clients = []
    for factor in (1.0, 13.0, 2.0):
        client = bench.client()
        stage = client.stage(program(build), constants=array("f", [factor]).tobytes())
        pass_id = client.define_pass(PROMPTS[1], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
        clients.append(client)
    bench.settle()
    assert [len(client.fired()) for client in clients] == [1, 0, 1]
    (failed,) = clients[1].failures()
    assert failed.failure.code == ErrorCode.PROGRAM_FAULT
    assert failed.failure.stage == "epilogue"
    assert clients[1].length(0) == 0 and clients[1].process.pages == 0


def test_an_epilogue_sees_what_the_prologue_put_and_then_the_front(bench: Bench) -> None:
    client = bench.client()
    cell = TensorType(DType.i32, (1,))
    channel = client.channel(cell, 2, [5])

    def double(b):
        b.put(0, b.add("add", (front := b.take(0), front)))
        return []

    def both(b):
        b.expect(0, HELD)
        return [b.take(0), b.read(0)]

    held, pipeline = client.working_set(), client.pipeline()
    pass_id = client.define_pass(
        [1], [held], readout=[[]],
        prologue=client.stage(program(double), channel),
        epilogue=client.stage(program(both), channel),
    )  # fmt: skip
    client.submit(pipeline, pass_id)
    bench.settle()
    assert [client.fired()[0].results] == [(b"\x0a\0\0\0", b"\x05\0\0\0")]
    assert client.process.channels[channel].held == 0


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
    bench = Bench(patience_floor=5.0)
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
