"""An inferlet that breaks the protocol is dropped with a goodbye; nobody else notices."""

import pytest

from ipc import codec
from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.eta.graph import HELD, SPENT
from ipc.types import BoundProgram, DType, Limits, Operand, PassSpec, TensorType
from tests.worker.bench import (
    PAGE_SIZE,
    TOKEN,
    Bench,
    Chat,
    Client,
    best,
    greedy,
    greedy_tokens,
    program,
)

PROMPT = [3, 1, 4, 1, 5]
EXPECTED = greedy_tokens(PROMPT, 4)
GOOD = PassSpec(50, 2, Operand((1, 2)), (0, 2), (0,), (1,), (1,))


def spec(**changes) -> m.DefinePass:
    import msgspec

    return m.DefinePass(msgspec.structs.replace(GOOD, **changes))


# Each is sent by a process that has a Chat: pipeline 0, set 0, channel 0 and passes 0 and 1.
VIOLATIONS = {
    "a program of random bytes": m.DefineProgram(b"ETA\x01\xff\xff"),
    "a channel twice": m.DefineChannel(0, TOKEN, 1),
    "a negative handle": m.DefineChannel(-1, TOKEN, 1),
    "a channel without room": m.DefineChannel(9, TOKEN, 0),
    "a channel of negative extent": m.DefineChannel(9, TensorType(DType.i32, (-4,)), 1),
    "a channel of rank 5": m.DefineChannel(9, TensorType(DType.i32, (1,) * 5), 1),
    "a channel larger than memory": m.DefineChannel(9, TensorType(DType.i32, (1 << 30,) * 4), 1),
    "no rows": spec(num_rows=0, tokens=Operand(()), indptr=(0, 0), readout=(), readout_counts=(0,)),
    "too many rows": spec(num_rows=9000, tokens=Operand((1,) * 9000), indptr=(0, 9000)),
    "rows that differ from ids": spec(tokens=Operand((1, 2, 3))),
    "an id outside the vocabulary": spec(tokens=Operand((1, 64))),
    "an id below -1": spec(tokens=Operand((1, -2))),
    "tokens from a channel of another shape": spec(tokens=Operand(channel=0)),
    "tokens from no channel": spec(tokens=Operand(channel=33)),
    "an indptr that decreases": spec(indptr=(0, 2, 1, 2), working_sets=(0, 1, 2)),
    "an indptr that ends early": spec(indptr=(0, 1)),
    "an empty indptr": spec(indptr=()),
    "a set twice in a pass": spec(indptr=(0, 1, 2), working_sets=(0, 0), readout_counts=(0, 1)),
    "sets that differ from lanes": spec(working_sets=(0, 1)),
    "a readout outside of its lane": spec(readout=(2,)),
    "a negative readout": spec(readout=(-1,)),
    "readout counts that do not add up": spec(readout_counts=(2,)),
    "a negative readout count": spec(indptr=(0, 1, 2), working_sets=(0, 1), readout_counts=(2, -1)),
    "an unknown program": spec(epilogue=BoundProgram(bytes(32), (), b"")),
    "a pass twice": m.DefinePass(PassSpec(0, 1, Operand((1,)), (0, 1), (0,), (), (0,))),
    "a put of the wrong size": m.Put(0, bytes(8)),
    "a put to no channel": m.Put(7, bytes(4)),
    "a put to a full channel": m.Put(0, bytes(4)),
    "a change of the wrong size": m.SetCell(0, bytes(8)),
    "a change in no channel": m.SetCell(7, bytes(4)),
    "a watch of no channel": m.Watch(7),
    "a set twice": m.OpenWorkingSet(0),
    "a fork of no set": m.Fork(9, 10, 0),
    "a fork on no pipeline": m.Fork(0, 10, 9),
    "a submit of no pass": m.Submit(0, 9, 5),
    "a submit on no pipeline": m.Submit(9, 0, 5),
    "a sequence number again": m.Submit(0, 0, 0),
    "a negative sequence number": m.Submit(0, 0, -3),
    "a run of nothing": m.RunAhead(0, 1, 5, 0, 1),
    "a run beyond the window": m.RunAhead(0, 1, 5, 100, 7),
    "a run without credits": m.RunAhead(0, 1, 5, 100, 0),
    "a negative credit": m.Credit(0, -1),
    "a stop without a run": m.Stop(0, 0),
    "a drop of no channel": m.DropChannel(7),
    "a drop of no pass": m.DropPass(7),
    "a drop of no set": m.DropWorkingSet(7),
    "sets of another number of lanes": m.BindState(0, (0, 1)),
    "bytes that are no command": b"\xc1\x00garbage",
    "a command of unknown tag": b"\x91\x92\x7f\x00",
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_ends_its_process_alone(name: str) -> None:
    bench = Bench()
    bad, good = Chat(bench.client(), PROMPT), Chat(bench.client(), PROMPT)
    for chat in (bad, good):
        chat.start()
    bench.settle()
    said = VIOLATIONS[name]
    data = said if isinstance(said, bytes) else codec.encode_commands([said])
    bench.hub.send([], [(bad.client.number, data)])
    good.run(3)
    bench.settle()
    assert bad.client.goodbye().failure.code == ErrorCode.INVALID_COMMAND
    assert bad.client.number not in bench.state.processes
    assert good.client.goodbye() is None
    assert good.tokens == EXPECTED
    assert good.client.process.pages == bench.state.pool.capacity - bench.state.pool.num_free


@pytest.mark.parametrize("state", [HELD, SPENT])
@pytest.mark.parametrize("does", ["take", "read"])
def test_a_stage_that_expects_what_no_prologue_has_put_ends_its_process(state, does) -> None:
    def looks(b):
        b.expect(0, state)
        return [getattr(b, does)(0)]

    bench = Bench()
    client = bench.client()
    stage = client.stage(program(looks), client.channel(TOKEN, 1, [3]))
    client.define_pass([1], [client.working_set()], epilogue=stage)
    # A read does not see what was put and taken, so it expects nothing.
    harmless = (state, does) == (SPENT, "read")
    assert _ended_by(bench, client) == (None if harmless else ErrorCode.INVALID_COMMAND)


@pytest.mark.parametrize(("does", "is_wrong"), [("take", True), ("read", True), ("put", False)])
def test_a_stage_that_overlooks_what_its_prologue_has_put_ends_its_process(does, is_wrong) -> None:
    def puts(b):
        b.put(0, b.take(0))
        return []

    def looks(b):
        return [b.take(0) if does == "take" else b.read(0)] if does != "put" else _put_again(b)

    bench = Bench()
    client = bench.client()
    channel = client.channel(TOKEN, 1, [3])
    client.define_pass(
        [1], [client.working_set()], prologue=client.stage(program(puts), channel),
        epilogue=client.stage(program(looks), channel, constants=bytes(4 * (does == "put"))), has_results=does != "put",
    )  # fmt: skip
    assert _ended_by(bench, client) == (ErrorCode.INVALID_COMMAND if is_wrong else None)


def _put_again(b) -> list[int]:
    b.put(0, b.add("constant", (), {"dtype": DType.i32, "shape": (1,)}))
    return []


def _ended_by(bench: Bench, client: Client) -> ErrorCode | None:
    bench.settle()
    goodbye = client.goodbye()
    return goodbye and goodbye.failure.code


def test_commands_after_a_goodbye_are_ignored() -> None:
    bench = Bench()
    chat = Chat(bench.client(), PROMPT)
    chat.client.say(m.Watch(99))
    assert _ended_by(bench, chat.client) == ErrorCode.INVALID_COMMAND
    chat.start()
    bench.settle()
    assert chat.client.events == [chat.client.goodbye()]


def test_channels_may_take_no_more_memory_than_the_limit() -> None:
    bench = Bench()
    client = bench.client(Limits(channels=1000))
    client.channel(TensorType(DType.f32, (100,)))
    assert _ended_by(bench, client) == ErrorCode.LIMIT


def test_no_more_passes_wait_than_the_limit() -> None:
    bench = Bench()
    chat = Chat(bench.client(Limits(passes=3)), PROMPT)
    for _ in range(4):
        chat.start()
    assert _ended_by(bench, chat.client) == ErrorCode.LIMIT


def test_no_more_pipelines_than_the_limit() -> None:
    bench = Bench()
    client = bench.client(Limits(pipelines=2))
    for _ in range(3):
        client.pipeline()
    assert _ended_by(bench, client) == ErrorCode.LIMIT


def test_a_set_is_used_by_one_pipeline_at_a_time() -> None:
    bench = Bench()
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    other = chat.client.pipeline()
    chat.client.submit(other, chat.client.define_pass([1], [chat.set]))
    assert _ended_by(bench, chat.client) == ErrorCode.INVALID_COMMAND


def test_a_pass_and_a_channel_belong_to_one_pipeline() -> None:
    for tokens in ([1], 0):
        bench = Bench()
        chat = Chat(bench.client(), PROMPT)
        chat.start()
        bench.settle()
        client, other = chat.client, chat.client.pipeline()
        free = client.working_set()
        stage = client.stage(greedy(), chat.token)
        client.submit(other, client.define_pass(tokens, [free], epilogue=stage))
        assert _ended_by(bench, client) == ErrorCode.INVALID_COMMAND


def test_a_set_may_move_to_another_pipeline_once_it_is_settled() -> None:
    bench = Bench()
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    bench.settle()
    other = chat.client.pipeline()
    stage = chat.client.stage(best())
    chat.client.submit(other, chat.client.define_pass(EXPECTED[:1], [chat.set], epilogue=stage))
    bench.settle()
    assert chat.client.tokens(other) == EXPECTED[1:2]


def test_what_was_sent_before_a_failure_was_known_is_dropped_quietly() -> None:
    bench = Bench(context=PAGE_SIZE)
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    bench.settle()
    chat.client.submit(chat.pipeline, chat.decode)
    chat.run(5)
    chat.client.say(m.Credit(chat.pipeline, 3), m.Stop(chat.pipeline + 7, 0))
    assert _ended_by(bench, chat.client) is None
    assert len(chat.client.failures()) == 1


def test_an_engine_bug_in_a_command_ends_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from worker import commands

    monkeypatch.setitem(commands.HANDLERS, m.Park, lambda *_: 1 / 0)
    bench = Bench()
    bad, good = Chat(bench.client(), PROMPT), Chat(bench.client(), PROMPT)
    bad.client.say(m.Park(bad.pipeline))
    good.start()
    assert _ended_by(bench, bad.client) == ErrorCode.INVALID_COMMAND
    assert good.tokens == EXPECTED[:1]
