"""Constrained loops as whole programs: packed masks, and forced text that costs no fire."""

import pytest

from inferlet import testing
from tests.inferlet.programs import constrained, constrained_forced

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "visited": {"enum": [True, False]}},
    "required": ["city", "visited"],
}


def preferring(letters):
    """A model that likes some bytes, and no white space where it is of no use."""

    def model(tokens):
        logits = [0.0] * 259
        for space in b" \t\r\n":
            logits[space] = -1.0
        logits[letters[len(tokens) % len(letters)]] = 9.0
        return logits

    return model


@pytest.mark.parametrize("letters", [b"a", b'"', b"}", b'xyz"f', b"\x80"])
def test_forced_text_needs_fewer_fires_and_changes_nothing(letters):
    value = {"question": "?", "schema": SCHEMA}
    model = preferring(letters)
    plain = testing.run(constrained.main, value, model=model)
    packed = testing.run(constrained_forced.main, {**value, "forced": False}, model=model)
    forced = testing.run(constrained_forced.main, value, model=model)
    assert plain["value"] == packed["value"] == forced["value"]
    assert forced["text"] == packed["text"]
    # The names of the members and the end of `true` or `false` are forced.
    assert packed["fires"] - forced["fires"] >= len('city"') + len('visited"') + len("rue")
