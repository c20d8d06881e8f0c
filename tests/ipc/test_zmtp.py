"""ZMTP as the hub reads it: every way of cutting the bytes, and what is at fault."""

import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc import zmtp
from ipc.errors import ProtocolError

READY = zmtp.pack(b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00", 4)
MORE = 1


def opened(longest: int = 1 << 20) -> zmtp.Reader:
    reader = zmtp.Reader(1 << 20)
    reader.feed(zmtp.GREETING + READY)
    assert reader.next() is None and reader.is_ready
    reader.longest = longest
    return reader


def read(reader: zmtp.Reader, data: bytes) -> list:
    reader.feed(data)
    found = []
    while (message := reader.next()) is not None:
        found.append(message)
    return found


@given(
    st.lists(st.binary(max_size=600), max_size=8),
    st.lists(st.integers(1, 700), min_size=1, max_size=9),
)
def test_messages_are_the_same_however_the_bytes_are_cut(messages, sizes):
    data = zmtp.GREETING + READY + b"".join(map(zmtp.pack, messages))
    reader, found, start = zmtp.Reader(1 << 20), [], 0
    for i in range(len(data)):
        piece = data[start : start + sizes[i % len(sizes)]]
        found += read(reader, piece)
        start += len(piece)
    assert found == messages


def test_a_message_of_several_parts_is_one_that_cannot_be_read():
    data = zmtp.pack(b"a" * 300, MORE) + zmtp.pack(b"", MORE) + zmtp.pack(b"b" * 9)
    assert read(opened(), data + zmtp.pack(b"c")) == [zmtp.UNREADABLE, b"c"]


def test_its_parts_are_not_kept():
    reader = zmtp.Reader(1 << 30)
    read(reader, zmtp.GREETING + READY)
    part = zmtp.pack(bytes(1 << 16), MORE)
    tracemalloc.start()
    for _ in range(500):
        assert read(reader, part) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_a_message_longer_than_is_kept_cannot_be_read_and_the_next_one_can():
    assert read(opened(100), zmtp.pack(b"x" * 101) + zmtp.pack(b"y")) == [zmtp.UNREADABLE, b"y"]


@pytest.mark.parametrize("size", [0, 1 << 10])
def test_parts_that_never_end_are_at_fault(size):
    reader = opened()
    with pytest.raises(ProtocolError, match="do not end"):
        for _ in range(zmtp.MAX_PARTS + 1):
            read(reader, zmtp.pack(bytes(size), MORE))


def test_a_longer_message_than_any_is_at_fault_by_its_header():
    with pytest.raises(ProtocolError, match="limit"):
        read(opened(), zmtp.pack(bytes((1 << 20) + 1))[:20])


def test_of_a_long_message_the_size_is_known_from_its_beginning():
    reader = opened()
    data = zmtp.pack(bytes(100_000))
    read(reader, data[:20])
    assert reader.unfinished == 100_000
    assert read(reader, data[20:]) == [bytes(100_000)]
    assert reader.unfinished == 0


@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_are_messages_or_at_fault(data):
    for reader in (zmtp.Reader(1 << 20), opened()):
        try:
            read(reader, data)
        except ProtocolError:
            pass


def test_what_is_no_greeting_is_at_fault_at_once():
    for data in (b"G", b"\xff" + bytes(8) + b"\x00", zmtp.GREETING[:10] + b"\x01", os.urandom(1)):
        if data == b"\xff":
            continue
        with pytest.raises(ProtocolError, match="no ZeroMQ client"):
            read(zmtp.Reader(1 << 20), data)
