"""Frames: any cut of the stream gives the same frames; a hostile header is refused at once."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc import frames
from ipc.errors import ProtocolError

FRAMES = st.lists(st.tuples(st.sampled_from([frames.ENGINE, frames.HUB]), st.binary(max_size=60)))


@given(FRAMES, st.lists(st.integers(1, 17), min_size=1))
def test_every_cut_of_the_stream_gives_the_same_frames(sent, cuts):
    stream = b"".join(frames.pack(kind, body) for kind, body in sent)
    reader, got, at, turn = frames.FrameReader(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == sent


@pytest.mark.parametrize(
    "header",
    [struct.pack("<IB", 0, 0), struct.pack("<IB", frames.MAX_FRAME + 1, 0), struct.pack("<IB", 5, 9)],
)
def test_an_illegal_header_is_refused_before_its_body_arrives(header):
    with pytest.raises(ProtocolError):
        list(frames.FrameReader().feed(header))


def test_a_frame_of_the_largest_size_passes_and_one_byte_more_does_not():
    reader = frames.FrameReader(max_frame=100)
    assert list(reader.feed(frames.pack(frames.HUB, b"x" * 99))) == [(frames.HUB, b"x" * 99)]
    with pytest.raises(ProtocolError):
        list(reader.feed(frames.pack(frames.HUB, b"x" * 100)))


def test_what_the_hub_decodes_is_shorter_than_what_it_relays():
    header = struct.Struct("<IB")
    reader = frames.FrameReader()
    assert list(reader.feed(header.pack(frames.MAX_HUB_FRAME + 1, frames.ENGINE))) == []
    with pytest.raises(ProtocolError):
        list(frames.FrameReader().feed(header.pack(frames.MAX_HUB_FRAME + 1, frames.HUB)))
