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


HOSTILE = """
from inferlet import *

async def main(input):
    said = []
    for make in (
        lambda: Grammar.from_json_schema('{"items":' * 10_000 + "{}" + "}" * 10_000),
        lambda: Grammar.from_json_schema({"enum": [f"value-{n:020d}" for n in range(150_000)]}),
        lambda: Grammar.from_json_schema({"properties": {f"p{n}": {} for n in range(20_000)}}),
        lambda: Grammar.from_regex("(((a{1,1000}){1,1000}){1,1000}){1,1000}"),
        lambda: Grammar.from_ebnf("root ::= " + " | ".join(f'"w{n}"' for n in range(50_000))),
    ):
        try:
            said.append(any(Matcher(make()).mask()))
        except GrammarError as error:
            said.append(str(error)[:60])
    return said
"""


def test_hostile_grammars_are_errors_or_grammars_and_nobody_else_notices(result, app):
    said = result(app(HOSTILE))
    assert len(said) == 5 and said[1] is True and said[3] is True
    assert all("nested" in said[0] and "rules" in text for text in (said[2], said[4]))
    value = {"question": "Where is the Eiffel Tower?", "schema": {"enum": ["Paris", "Rome"]}}
    assert result(PROGRAMS / "constrained_forced.py", value)["value"] in ("Paris", "Rome")
