"""Messages in pieces come together as they were, and what is no piece is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.errors import ProtocolError
from ipc.pieces import MAX_FRAME, PIECE, Joiner, cut


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7])
def test_a_message_comes_together_from_small_pieces(size):
    message = bytes(range(251)) * (size // 251 + 1)
    message = message[:size]
    pieces = list(cut(message))
    assert len(pieces) == max(1, -(-size // PIECE)) and max(map(len, pieces)) <= MAX_FRAME
    joiner = Joiner()
    assert [joiner.add(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert joiner.size == sum(len(piece) - 1 for piece in pieces[:-1])
    assert joiner.add(pieces[-1]) == message
    assert joiner.size == 0


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_messages_follow_one_another(messages):
    joiner = Joiner()
    pieces = [piece for message in messages for piece in cut(message)]
    assert [joiner.add(piece) for piece in pieces] == messages


@pytest.mark.parametrize("piece", [b"", b"\x02ab", b"\x00" + bytes(PIECE + 1)])
def test_what_is_no_piece_is_refused(piece):
    with pytest.raises(ProtocolError):
        Joiner().add(piece)


def test_a_message_without_end_is_refused_at_the_limit():
    joiner = Joiner(limit=10)
    assert joiner.add(b"\x01" + bytes(6)) is None
    with pytest.raises(ProtocolError, match="a message of more than"):
        joiner.add(b"\x01" + bytes(6))
    assert joiner.size == 6
