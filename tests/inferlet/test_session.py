"""Messages to and from the client (contract, 7)."""

import asyncio
import dataclasses
import enum

import numpy as np
import pytest

from inferlet import session, testing
from inferlet.testing import Client
from ipc import messages as m
from tests.inferlet.support import on_engine, settle


class Colour(str, enum.Enum):
    red = "red"


class Dumps:
    def model_dump(self):
        return {"dumped": np.int64(1)}


@dataclasses.dataclass
class Plain:
    x: int


@pytest.mark.parametrize(
    "message, arrives",
    [
        ("text", "text"),
        ("", ""),
        (1, 1),
        (2.5, 2.5),
        (True, True),
        (None, None),
        ([1, "a", None], [1, "a", None]),
        ((1, 2), [1, 2]),
        ({"a": {"b": []}}, {"a": {"b": []}}),
        (np.int32(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        ({"x": np.array([[1.5]])}, {"x": [[1.5]]}),
        (Dumps(), {"dumped": 1}),
        ("\n日本 🦊", "\n日本 🦊"),
        ({"k": "\ud800"}, {"k": "\ud800"}),
    ],
)
def test_send_gives_the_client_the_value(message, arrives):
    client = Client()

    def main():
        session.send(message)

    testing.run(main, client=client)
    assert client.messages == [arrives] and type(client.messages[0]) is type(arrives)


@pytest.mark.parametrize("message", [b"x", {1}, object(), Plain(1), Dumps, {"a": b"x"}, 1j])
def test_send_of_another_type_is_a_type_error(message):
    with pytest.raises(TypeError):
        testing.run(lambda: session.send(message))


@pytest.mark.parametrize("message", [float("nan"), [float("inf")], np.array([np.nan]), "\ud800"])
def test_send_of_what_json_or_unicode_cannot_hold_is_a_value_error(message):
    with pytest.raises(ValueError):
        testing.run(lambda: session.send(message))


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (float("nan"), ValueError, "nan at the message"),
        ({"a": [1, float("inf")]}, ValueError, "inf at the message['a'][1]"),
        ({"a": np.array([1.0, np.nan])}, ValueError, "nan at the message['a'][1]"),
        ([{"b": {1, 2}}], TypeError, "set at the message[0]['b']"),
        ({(1, 2): 3}, TypeError, "a key of type tuple at the message"),
        ([b"x"], TypeError, "bytes at the message[0]"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(message, error, words):
    with pytest.raises(error) as caught:
        testing.run(lambda: session.send(message))
    assert f"JSON cannot hold it: {words}\n\nhint: send text" in str(caught.value)


def test_a_message_beyond_a_frame_is_a_value_error():
    with pytest.raises(ValueError, match="at most"):
        testing.run(lambda: session.send("x" * (17 << 20)))


def test_receive_gives_messages_in_order_then_eof():
    async def main():
        got = [await session.receive() for _ in range(3)]
        for _ in range(2):
            with pytest.raises(EOFError):
                await session.receive()
        return got

    client = Client(["text", {"a": 1}, [2]])
    assert testing.run(main, client=client) == ["text", {"a": 1}, [2]]


@on_engine()
async def test_the_client_is_asked_with_the_first_receive_alone(hub):
    await settle()
    assert not hub.client.has_been_asked
    hub.client.inbox = ["a", "b"]
    assert [await session.receive(), await session.receive()] == ["a", "b"]
    assert hub.client.has_been_asked


@on_engine()
async def test_waiting_receivers_are_served_in_call_order(hub):
    waiting = [asyncio.create_task(session.receive()) for _ in range(3)]
    await settle()
    for text in "abc":
        hub.to_inferlet(m.Inbox(False, text))
    assert await asyncio.gather(*waiting) == ["a", "b", "c"]


@on_engine()
async def test_a_cancelled_receiver_loses_no_message(hub):
    first, second = (asyncio.create_task(session.receive()) for _ in range(2))
    await settle()
    hub.to_inferlet(m.Inbox(False, "only"))
    first.cancel()
    assert await second == "only"
    with pytest.raises(asyncio.CancelledError):
        await first


@on_engine()
async def test_a_timeout_loses_no_message(hub):
    for ticks in range(6):
        task = asyncio.create_task(session.receive())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    hub.to_inferlet(m.Inbox(True, '{"kept": true}'))
    assert await session.receive() == {"kept": True}


@on_engine()
async def test_the_end_of_the_client_reaches_every_waiting_receiver(hub):
    waiting = [asyncio.create_task(session.receive()) for _ in range(2)]
    await settle()
    hub.to_inferlet(m.Inbox(False, "last"))
    hub.to_inferlet(m.InboxClosed())
    last, end = await asyncio.gather(*waiting, return_exceptions=True)
    assert last == "last" and type(end) is EOFError


def test_files_are_there_at_once_and_again():
    def main():
        with pytest.raises(KeyError, match="attached: a, b"):
            session.file("c")
        return [session.file("a").decode(), session.file("a").decode(), session.id()]

    client = Client(files={"a": b"one", "b": b"two"})
    assert testing.run(main, client=client) == ["one", "one", "test"]


def test_send_to_reaches_the_inbox_of_the_other_in_order():
    def sender():
        for message in ("text", {"a": [1]}, np.int32(3)):
            session.send_to("receiver", message)

    async def receiver():
        return [await session.receive() for _ in range(3)]

    values = testing.run_together({"receiver": (receiver, None), "sender": (sender, None)})
    assert values["receiver"] == ["text", {"a": [1]}, 3]


@on_engine()
async def test_a_process_sends_to_itself(hub):
    session.send_to(session.id(), "hi")
    assert await session.receive() == "hi"


@on_engine()
async def test_texts_of_other_classes_travel_as_plain_text(hub):
    session.send_to(np.str_(session.id()), np.str_("a"))
    session.send_to(session.id(), Colour.red)
    for text in ("a", "red"):
        message = await session.receive()
        assert (message, type(message)) == (text, str)  # the wire's encoder knows no other


@on_engine()
async def test_send_to_raises_what_the_hub_answers(hub):
    with pytest.raises(LookupError, match="`nobody`: no live process"):
        session.send_to("nobody", "hi")
    hub.peers["other"] = hub
    for outcome, kind in (("other client", PermissionError), ("full", BufferError)):
        hub.take = lambda message, outcome=outcome: outcome
        with pytest.raises(kind, match="`other`"):
            session.send_to("other", "hi")
    with pytest.raises(TypeError):
        session.send_to(3, "hi")
    with pytest.raises(TypeError):
        session.send_to("other", b"hi")


@on_engine()
async def test_what_was_received_is_reported_before_the_next_word(hub):
    said = []
    take = hub._on_message
    hub._on_message = lambda message: (said.append(message), take(message))[1]
    for text in "abc":
        hub.to_inferlet(m.Inbox(False, text))
    assert [await session.receive() for _ in range(3)] == ["a", "b", "c"]
    session.send("done")
    assert said == [m.Receiving(), m.Received(3), m.Send(False, "done")]


@pytest.mark.parametrize("size", [0, 1, m.FILE_PART, m.FILE_PART + 1])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_send_file_gives_the_client_the_bytes(size, kind):
    client, data = Client(), bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    testing.run(lambda: session.send_file(kind(data)), client=client)
    assert client.files_sent == [data]


def test_send_file_takes_any_view_and_nothing_but_bytes():
    client, numbers = Client(), np.arange(10, dtype=np.int16)

    def main():
        session.send_file(memoryview(numbers))
        session.send_file(memoryview(numbers)[::2])
        for other in ("text", None, [1], numbers):
            with pytest.raises(TypeError):
                session.send_file(other)

    testing.run(main, client=client)
    assert client.files_sent == [numbers.tobytes(), numbers[::2].tobytes()]


def test_receive_file_gives_files_in_order_then_eof():
    async def main():
        got = [await session.receive_file() for _ in range(2)]
        with pytest.raises(EOFError):
            await session.receive_file()
        return [len(data) for data in got]

    assert testing.run(main, client=Client(later_files=[b"abc", b""])) == [3, 0]


@on_engine()
async def test_a_cancelled_receiver_of_files_loses_none(hub):
    first, second = (asyncio.create_task(session.receive_file()) for _ in range(2))
    await settle()
    first.cancel()
    hub.to_inferlet(m.FilePart(4, b"ab"))
    hub.to_inferlet(m.FilePart(4, b"cd"))
    assert await second == b"abcd"
    hub.to_inferlet(m.FilePart(1, b"e"))
    assert await session.receive_file() == b"e", "it was asked for by the cancelled one"


@on_engine()
async def test_a_process_whose_id_is_no_text_is_not_alive(hub):
    with pytest.raises(LookupError, match="no live process"):
        session.send_to("\ud800", "hello")


@on_engine()
async def test_a_file_is_asked_for_by_its_name(hub):
    with pytest.raises(TypeError, match=r"`session.file` got \[\]; it takes a name"):
        session.file([])
