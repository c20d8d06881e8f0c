"""Messages of clients survive the wire, and bytes of an older peer stay readable."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc import client as c
from ipc import messages as m
from ipc.errors import ProtocolError
from ipc.types import EngineInfo, Limits, ModelInfo

MODEL = ModelInfo("m", "llama", "/m", 10, 12, 2, 8, 64, "float32")
ROW = c.ProcessRow(
    "p", "app.py", "me", "queued", 1.5, 1, 2, None, 4, "full", "m", 0.25, 3, 5, 1, -1
)  # fmt: skip
STATS = m.ProcessStats({1: (2, 3, 4)}, 5, 6, 7, 8, 9)
FROM_CLIENT = [
    c.Hello(1, 2, "me"),
    c.Run(
        1, "app.py", "x", {"b": "y"}, "{}", {"f": b"1"}, "name", 2.5, True, "salt", 3,
        c.Asked(memory=1 << 28, pages=9), "other", "/files",
    ),
    c.Message("p", True, "1", 4), c.CloseInput("p"), c.Kill(("p", "q"), True), c.List(),
    c.StopEngine(), c.Shown("p", 9), c.Attach(1, "p", False), c.Detach("p"),
    c.ReadLog(2, "p", True), c.FilePart(3, "p", 2, b"ab", b"\x01" * 32), c.ReadTrace(4, "p"),
    c.AskFacts(5), c.Leave(), c.ReadFile(6, "p", 1, 4),
]  # fmt: skip
PRINTED = c.Printed("p", 1.5, "stdout", "x")
FROM_HUB = [
    c.Welcome(1, "m", False), c.Progress(0.5, "loading"), c.Launched(1, "p", 1.5, "full"),
    c.Refused(1, "why", "hint"), c.Sent("p", 1.5, True, "1"), PRINTED, c.Receiving("p"),
    c.Taken("p", 3), c.Returned("p", 1.5, "null"),
    c.Error("p", 1.5, "E", "m", "t", 137, "memory"), c.EngineFailed("m", "h"),
    c.Processes((ROW,), STATS), c.Killed(("p",)), c.Queued(1, "p", 2, "why"),
    c.Answered(4, c.FULL), c.Attached(1, "p", "app.py", "me", "m", "full", 1.5, True, 7),
    c.Unknown(2, "p"), c.Log(2, "p", (PRINTED,), False, 10),
    c.Stored("p", 1.5, 1, "/files/p-1", 2, "00" * 32, "the disk is full"),
    c.Timeline(4, "p", "app.py", (c.Span("pass", "0", 1.0, 2.0, {"seq": 3}),), True, 1),
    c.Facts(
        5, 10, 1.5, "3.11.2", 1, MODEL, EngineInfo(1, 16, 64), "full", "full (bwrap)", "/log",
        Limits(memory=5), 2000, 1, 2, 3, 4, 11, 1, None, 2, 1 << 20,
    ),
    c.FileData(6, "p", b"ab", "it is gone"),
]  # fmt: skip


@pytest.mark.parametrize("message", FROM_CLIENT, ids=lambda message: type(message).__name__)
def test_requests_survive_the_wire(message):
    assert c.decode_from_client(c.encode(message)) == message


@pytest.mark.parametrize("message", FROM_HUB, ids=lambda message: type(message).__name__)
def test_answers_survive_the_wire(message):
    assert c.decode_from_hub(c.encode(message)) == message


def test_every_message_has_an_example():
    assert {type(message) for message in FROM_CLIENT} == set(c.FromClient.__args__)
    assert {type(message) for message in FROM_HUB} == set(c.FromHub.__args__)


def test_a_run_as_first_written_asks_for_nothing_new():
    run = c.decode_from_client(msgspec.msgpack.encode([2, 1, "a.py", "x", {}, "{}", {}]))
    assert (run.limits, run.client, run.files_folder) == (c.Asked(), None, "")


def test_the_keys_of_limits_are_those_of_the_engines_own():
    assert set(c.Asked.__struct_fields__) == set(Limits.__struct_fields__)


@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_a_protocol_error(data):
    for decode in (c.decode_from_client, c.decode_from_hub):
        try:
            decode(data)
        except ProtocolError:
            pass
