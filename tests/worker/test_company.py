"""Inferlets of one wave share kernels, and neither values nor faults."""

from array import array

import pytest

from inferlet import eta
from inferlet.eta import intrinsics
from ipc.errors import ErrorCode
from ipc.messages import Credit
from ipc.types import DType, TensorType
from tests.eta_support import FakeChannel, traced
from tests.worker.bench import TOKEN, Bench, Chat, Client, as_cell, logits, program
from worker import programs
from worker.eta.executor import CompiledProgram, compile

VOCAB, COUNT, LENGTH = 64, 64, 10
RNG = TensorType(DType.u32, (2,))
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7], [2]]


def recorded(temperature: float, top_p: float):
    """A nucleus epilogue as a user's stage records it; constants are its temperature and top_p."""
    token, dice = FakeChannel(DType.i32, (1,), "token"), FakeChannel(DType.u32, (2,), "dice")

    def choose():
        state = dice.take()
        chosen = eta.nucleus_sample(intrinsics.output(0, "logits") / temperature, top_p, state)
        dice.put(state + eta.constant([0, 1], DType.u32))
        token.put(chosen)
        return chosen

    stage = traced(choose, width=VOCAB)
    return stage, [channel is token for channel in stage.channels]


def start(client: Client, number: int) -> None:
    """A sampler with constants, a seed and a prompt of its own."""
    stage, is_token = recorded(0.5 + number / 40, 0.5 + number / 200)
    token = client.channel(TOKEN)
    dice = client.channel(RNG, 1, [number, 0])
    bound = client.stage(
        stage.program, *(token if is_it else dice for is_it in is_token), constants=stage.constants
    )
    held, pipeline = [client.working_set()], client.pipeline()
    prompt = PROMPTS[number % len(PROMPTS)]
    client.submit(pipeline, client.define_pass(prompt, held, epilogue=bound))
    client.run(pipeline, client.define_pass(token, held, epilogue=bound), LENGTH - 1)


@pytest.fixture
def group_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instances each call of a compiled program had."""
    sizes: list[int] = []
    run = CompiledProgram.run

    def counted(self, count, *rest):
        sizes.append(count)
        return run(self, count, *rest)

    monkeypatch.setattr(CompiledProgram, "run", counted)
    return sizes


def advance(bench: Bench, clients: list[Client]) -> None:
    """To the end of all runs, with credits as an SDK gives them."""
    for _ in range(LENGTH):
        bench.settle()
        for client in clients:
            if len(client.fired(0)) < LENGTH:
                client.say(Credit(0, 1))
    bench.settle()


def test_sixty_four_instances_are_one_kernel_group_and_draw_what_each_draws_alone(group_sizes):
    bench = Bench(num_pages=1024)
    clients = [bench.client() for _ in range(COUNT)]
    for number, client in enumerate(clients):
        start(client, number)
    advance(bench, clients)
    assert group_sizes == [COUNT] * LENGTH
    together = [client.tokens() for client in clients]
    assert {len(tokens) for tokens in together} == {LENGTH}
    assert len({tuple(tokens) for tokens in together}) > COUNT // 2
    alone = Bench(num_pages=1024)
    for number, tokens in enumerate(together):
        client = alone.client()
        start(client, number)
        advance(alone, [client])
        assert client.tokens() == tokens, number
    assert group_sizes[LENGTH:] == [1] * LENGTH * COUNT


def test_a_faulting_program_fails_its_own_pipeline_alone():
    """One pipeline's program makes an id that no token has; its process has another pipeline."""
    bench = Bench(num_pages=512)
    clients = [bench.client() for _ in range(8)]
    for number, client in enumerate(clients):
        start(client, number)
    guilty = clients[5]

    def spoil(b):
        best = b.add("reduce_argmax", (logits(b),))
        large = b.add("constant", (), {"dtype": DType.i32, "shape": ()})
        b.put(0, as_cell(b, b.add("add", (best, large))))
        return [best]

    token, held, pipeline = guilty.channel(), [guilty.working_set()], guilty.pipeline()
    stage = guilty.stage(program(spoil), token, constants=array("i", [999]).tobytes())
    guilty.submit(pipeline, guilty.define_pass([1, 2], held, epilogue=stage))
    failing = guilty.submit(pipeline, guilty.define_pass(token, held, epilogue=stage))
    guilty.submit(pipeline, guilty.define_pass([3], held))
    neighbour = Chat(guilty, [7, 7])
    neighbour.start()
    advance(bench, clients)
    failures = [failed for client in clients for failed in client.failures()]
    assert [(f.pipeline, f.seq, f.failure.code) for f in failures] == [
        (pipeline, failing, ErrorCode.TOKEN_RANGE)
    ]
    assert len(guilty.tokens(pipeline)) == 1 and len(neighbour.tokens) == 1
    quiet = Bench(num_pages=512)
    others = [quiet.client() for _ in range(8)]
    for number, client in enumerate(others):
        start(client, number)
    advance(quiet, others)
    assert [c.tokens(0) for c in clients] == [c.tokens(0) for c in others]


@pytest.mark.parametrize("joined", [0, 1 << 24])
def test_large_instances_run_in_several_calls_and_draw_the_same(group_sizes, monkeypatch, joined):
    whole = Bench(num_pages=512)
    for number in range(7):
        start(whole.client(), number)
    advance(whole, list(whole.clients.values()))
    assert group_sizes == [7] * LENGTH
    group_sizes.clear()
    stage, _ = recorded(0.5, 0.5)
    peak = compile(stage.program, [RNG, TOKEN], stage.outputs, "cpu").peak_bytes
    monkeypatch.setattr(programs, "MAX_STACKED_BYTES", 3 * peak)
    monkeypatch.setattr(programs, "MAX_JOINED_BYTES", joined)
    parts = Bench(num_pages=512)
    for number in range(7):
        start(parts.client(), number)
    advance(parts, list(parts.clients.values()))
    assert group_sizes == [3, 3, 1] * LENGTH
    for number, client in whole.clients.items():
        assert parts.clients[number].tokens() == client.tokens()


def test_what_lives_at_once_is_counted_for_one_instance():
    def build(b):
        x = b.add("broadcast", (b.add("reduce_max", (logits(b),)),), {"shape": (1000,)})
        for _ in range(5):
            x = b.add("exp", (x,))  # of five, two live at once, and the scratch of one
        return [b.add("reduce_sum", (x,))]

    outputs = {(0, "logits"): TensorType(DType.f32, (VOCAB,))}
    assert 12_000 <= compile(program(build), [], outputs, "cpu").peak_bytes < 13_000


def test_equal_heavy_stages_of_many_pipelines_do_not_pile_up_in_memory(group_sizes):
    bench = Bench(num_pages=512)
    client = bench.client()

    def build(b):
        x = b.add("broadcast", (b.add("reduce_max", (logits(b),)),), {"shape": (1 << 22,)})
        return [b.add("reduce_sum", (b.add("mul", (x, x)),))]

    stage = client.stage(program(build))
    for _ in range(12):
        pass_id = client.define_pass([1, 2], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
    bench.settle()
    assert len(client.fired()) == 12
    assert sum(group_sizes) == 12 and max(group_sizes) < 12
