"""Messages survive the wire, old bytes stay readable, hostile bytes are a ProtocolError."""

import signal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc import codec
from ipc import messages as m
from ipc.errors import ErrorCode, Failure, ProtocolError
from ipc.transport import local_pair
from ipc.types import (
    BoundProgram, DType, EngineInfo, Limits, ModelInfo, Operand, PassSpec, TensorType,
)  # fmt: skip

SPEC = PassSpec(
    pass_id=3, num_rows=4, tokens=Operand(channel=7), indptr=(0, 1, 4), working_sets=(0, 1),
    readout=(0, 3), readout_counts=(1, 1), epilogue=BoundProgram(b"\x01" * 32, (7,), b"\x00" * 4),
    has_results=True,
)  # fmt: skip
COMMANDS = [
    m.DefineProgram(b"ETA"), m.DefineChannel(0, TensorType(DType.bool_, (2, 3)), 7),
    m.DefinePass(SPEC), m.BindState(3, (4, 5)), m.Put(0, b"\x01\x02"), m.SetCell(0, b""),
    m.Watch(1), m.OpenWorkingSet(0), m.Fork(0, 1, 2), m.OpenPipeline(0), m.Submit(0, 3, 1 << 60),
    m.RunAhead(0, 3, 5, 100, 6), m.Credit(0, 3), m.Stop(0, 9), m.Park(0), m.ClosePipeline(0),
    m.DropWorkingSet(0), m.DropChannel(0), m.DropPass(3),
    m.Reserve(1, 64),
]  # fmt: skip
EVENTS = [
    m.Fired(0, 1, (b"abcd",), ((7, b"\x00"),), (3,)), m.Cells(1, (b"a", b"b")),
    m.Failed(0, 2, Failure(ErrorCode.TOKEN_RANGE, "why", "epilogue", 4)),
    m.Goodbye(Failure(ErrorCode.INVALID_COMMAND, "why")),
]  # fmt: skip
MODEL = ModelInfo("m", "llama", "/m", 10, 12, 2, 8, 64, "float32")
ENGINE = EngineInfo(1, 32, 100)
TO_INFERLET = [
    m.Launch("p1", "app.py", "x", {"b": "y"}, "{}", {"f": b"1"}, MODEL, ENGINE),
    m.Inbox(False, "hi"), m.InboxClosed(), m.Engine(Failure(ErrorCode.WORKER_LOST, "gone")),
    m.SentTo("full"), m.FilePart(3, b"abc"), m.FilesClosed(), m.Leave(),
]  # fmt: skip
FROM_INFERLET = [
    m.Send(True, "{}"), m.Receiving(), m.Output("stdout", "x"), m.Returned("null"),
    m.Raised("ValueError", "m", "t", "pages"), m.SendTo("p2", True, "1"), m.Received(3),
    m.SendFilePart(2, b"ab", b"\x01" * 32), m.ReceivingFile(),
]  # fmt: skip


def test_commands_and_events_survive_the_wire():
    assert codec.decode_commands(codec.encode_commands(COMMANDS)) == COMMANDS
    assert codec.decode_events(codec.encode_events(EVENTS)) == EVENTS
    assert {type(c) for c in COMMANDS} == set(m.Command.__args__)
    assert {type(e) for e in EVENTS} == set(m.Event.__args__)


@pytest.mark.parametrize("message", TO_INFERLET)
def test_hub_messages_survive_the_way_down(message):
    assert codec.decode_to_inferlet(codec.encode(message)) == message


@pytest.mark.parametrize("message", FROM_INFERLET)
def test_hub_messages_survive_the_way_up(message):
    assert codec.decode_from_inferlet(codec.encode(message)) == message


@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_a_protocol_error(data):
    for decode in (codec.decode_commands, codec.decode_events, codec.decode_from_inferlet):
        try:
            decode(data)
        except ProtocolError:
            pass


def test_deep_nesting_is_a_protocol_error():
    with pytest.raises(ProtocolError):
        codec.decode_commands(b"\x91" * 100_000)


def test_a_field_that_an_old_peer_does_not_send_takes_its_default():
    old = msgspec.msgpack.encode([[1, 0, 9]])  # Fired as first written: pipeline, seq
    assert codec.decode_events(old) == [m.Fired(0, 9)]


def test_one_message_carries_the_batches_of_every_process_in_order():
    hub, worker = local_pair()
    hub.send([m.ProcessStarted(1, Limits())], [(1, b"a"), (2, b"b"), (1, b"c")])
    assert worker.receive() == ([m.ProcessStarted(1, Limits())], [(1, b"a"), (2, b"b"), (1, b"c")])
    worker.send([m.Ready(MODEL, ENGINE, {"load": 1.0})], [(2, b"z")])
    assert hub.receive() == ([m.Ready(MODEL, ENGINE, {"load": 1.0})], [(2, b"z")])
    assert (hub.sent, hub.received, worker.sent, worker.received) == (1, 1, 1, 1)
    assert worker.receive() is None


class Interrupting(msgspec.Struct):
    """Whoever reads its types is interrupted meanwhile."""

    number: "interrupted()"  # noqa: F821 - evaluated by msgspec


went_on = []


def interrupted() -> type:
    signal.raise_signal(signal.SIGINT)  # of this thread: others of the tests may run
    went_on.append(True)
    return int


def test_an_interrupt_waits_until_a_decoder_is_made():
    with pytest.raises(KeyboardInterrupt):
        codec.make_decoder(Interrupting)
    assert went_on
