"""Packed masks of a matcher in real epilogues, against the real model."""

import json

import pytest

from tests.end_to_end.conftest import PROGRAMS

pytestmark = pytest.mark.model

SCHEMA = {
    "type": "object",
    "properties": {
        "city_name": {"type": "string", "maxLength": 12},
        "has_been_visited": {"type": "boolean"},
        "rating": {"enum": [1, 2, 3]},
    },
    "required": ["city_name", "has_been_visited", "rating"],
}


def test_packed_masks_constrain_as_bools_do_and_forced_text_needs_fewer_fires(result):
    value = {"question": "Where is the Eiffel Tower?", "schema": SCHEMA}
    bools = result(PROGRAMS / "constrained.py", value)["value"]
    packed = result(PROGRAMS / "constrained_forced.py", {**value, "forced": False})
    forced = result(PROGRAMS / "constrained_forced.py", value)
    assert packed["value"] == bools
    assert json.loads(forced["text"]) == forced["value"]
    assert list(forced["value"]) == SCHEMA["required"]
    assert forced["fires"] < packed["fires"]
