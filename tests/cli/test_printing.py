"""What a process prints in a row is joined, and is the same text in the same order."""

from hypothesis import given
from hypothesis import strategies as st

from pie_cli.engine.printing import MAX_JOINED, Printing

PIECES = st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=4))


def told_of(*pieces: tuple[str, str]) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    printing = Printing(lambda *piece: told.append(piece))
    for stream, text in pieces:
        printing.add(stream, text)
    printing.flush()
    printing.flush()
    return told


def test_texts_in_a_row_are_one():
    assert told_of(("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")) == [
        ("stdout", "ab"), ("stderr", "c"), ("stdout", "d"),
    ]  # fmt: skip


@given(st.lists(PIECES))
def test_characters_keep_their_order_and_their_stream(pieces):
    def characters(told):
        return [(stream, character) for stream, text in told for character in text]

    assert characters(told_of(*pieces)) == characters(pieces)


def test_what_is_joined_is_bounded():
    told = told_of(*[("stdout", "x" * 1000)] * 200)
    assert sum(len(text) for _, text in told) == 200_000
    assert max(len(text) for _, text in told) < MAX_JOINED + 1000
