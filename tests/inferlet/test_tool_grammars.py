"""`tools.create_matcher` (contract, 4) for every call markup: what it lets through, the decoder reads
as calls whose arguments satisfy the schema."""

import contextlib
import json
import random

import jsonschema
import pytest

from inferlet import GrammarError, mask, tools
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.inferlet.call_support import STOP, VOCABULARIES, decode, install

EVERY_TYPE = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "short": {"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^[a-z<\"']*$"},
        "word": {"enum": ["1", "true", "a b", "null"]},
        "count": {"type": "integer", "minimum": -3, "maximum": 120},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "mixed": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3},
        "inner": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "n": {"type": "null"}},
            "required": ["k"],
        },
    },
    "required": ["text", "word", "count"],
    "$defs": {"item": {"type": ["string", "boolean"]}},
}
OPEN_OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": {"type": "string", "maxLength": 3},
}
SPECS = [
    {"name": "every", "parameters": EVERY_TYPE},
    {"name": "open", "parameters": OPEN_OBJECT},
    {"name": "none"},
]
SCHEMAS = {spec["name"]: spec.get("parameters", {"maxProperties": 0}) for spec in SPECS}
# The markers that are special tokens in the models of a family.
SPECIAL = {
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    "deepseek": ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                 "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"],
    "dsml": ["｜DSML｜"],
    "kimi": ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
             "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
    "xtml": ["<|open|>", "<|close|>", "<|sep|>"],
    "gemma": ["<|tool_call>", "<tool_call|>", '<|"|>'],
    "harmony": ["<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"],
    "glm": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
            "</arg_value>"],
    "xml": ["<tool_call>", "</tool_call>"],
}  # fmt: skip
TEMPLATES = {"mistral-new": "[TOOL_CALLS] [ARGS]", "mistral-ids": "[TOOL_CALLS] [ARGS] [CALL_ID]",
             "deepseek-fenced": "<｜tool▁call▁begin｜> ```json", "phi": "<|tool_call|> <|/tool_call|>",
             "functools": "functools["}  # fmt: skip


def vocabulary_of(family, has_special):
    name = family.partition("-")[0]
    if family in TEMPLATES:
        made = byte_vocabulary(CHATML + "{# " + TEMPLATES[family] + " #}")
    else:
        plain = VOCABULARIES[family]
        made = byte_vocabulary(plain.template)
    if has_special:
        made.tokenizer.add_special_tokens(SPECIAL[name])
    return Vocabulary(made.tokenizer, made.config, made.template)


STOPS = (STOP, STOP + 1)
FAMILIES = (*VOCABULARIES, *TEMPLATES)
CASES = [(family, False) for family in FAMILIES]
CASES += [(family, True) for family in FAMILIES if family.partition("-")[0] in SPECIAL]


@pytest.fixture(params=CASES, ids=lambda case: case[0] + "-special" * case[1])
def family(request):
    made = vocabulary_of(*request.param)
    install(made)
    yield made
    handles.install(None)


# Tried whole, as tokens and as the bytes of text: ends of values, and what looks like them.
SNIPPETS = (
    '"', "}", "]", ")", ",", ", ", ":", "\n", "\n</parameter>\n", "</parameter>", "</function>",
    "\n<parameter=text>\n", "<parameter=", "</arg_value>", "</tool_call>", "<tool_call>", '<|"|>',
    "</｜DSML｜parameter>\n", "</｜DSML｜ parameter>", "<|close|>argument<|sep|>", "[TOOL_CALLS]",
    "[ARGS]", "<｜tool▁call▁end｜>", "<|tool_call_end|>", "<tool_call|>", "<|end|>", "null", "12",
    "true", "a", "é🎉", "\\", "'", " ", "<", "&lt;", "\\n", "\\u00e9",
)  # fmt: skip


def walk(matcher, made, rng, limit=900):
    """Tokens of a random reply; None when it did not come to its end."""
    tokens, size = [], made.tokenizer.get_vocab_size()
    while len(tokens) < limit:
        if tokens and rng.random() < 0.1:  # which leaves everything as it was
            matcher = matcher.fork()
            matcher.rollback(1)
            matcher.accept_tokens(tokens[-1:])
        if rng.random() < 0.2:
            forced = matcher.forced_tokens()
            matcher.accept_tokens(forced)
            tokens += forced
        if rng.random() < 0.5:
            snippet = rng.choice(SNIPPETS)
            piece = made.encode(snippet) if rng.random() < 0.7 else list(snippet.encode())
            with contextlib.suppress(GrammarError):
                matcher.accept_tokens(piece)
                tokens += piece
            continue
        legal = [t for t, may in enumerate(mask.unpack_mask(matcher.mask(), size)) if may]
        assert legal, made.tokenizer.decode(tokens)
        more = [token for token in legal if token not in STOPS]
        if STOP in legal and (not more or rng.random() < 0.6):
            matcher.accept_tokens([STOP])
            return tokens
        ends = [token for token in more if token > 255 or chr(token) in "\"'}]),<|\n/"]
        token = rng.choice(ends if ends and rng.random() < 0.3 else more)
        matcher.accept_tokens([token])
        tokens.append(token)
    return None


def test_every_reply_that_may_come_is_read_as_valid_calls(family):
    matcher, rng, num_calls = tools.create_matcher(SPECS), random.Random(7), 0
    for _ in range(12):
        matcher.reset()
        tokens = walk(matcher, family, rng)
        if tokens is None:
            continue
        found = decode([tokens])
        text = b"".join(map(family.token_bytes, tokens)).decode()
        assert found, text
        for name, arguments in found:
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        assert decode([[token] for token in tokens]) == found
        num_calls += len(found)
    assert num_calls >= 6


def test_forced_tokens_are_looked_at_without_an_effect(family):
    matcher = tools.create_matcher([{"name": "none"}])
    before = matcher.mask()
    forced = matcher.forced_tokens()
    assert matcher.fork().mask() == before == matcher.mask()
    matcher.accept_tokens(forced)
    matcher.rollback(len(forced))
    assert matcher.mask() == before


def test_nothing_but_calls_may_come(family):
    matcher = tools.create_matcher(SPECS)
    for text in ("hi", "}", "\n"):
        with pytest.raises(GrammarError):
            matcher.accept_tokens(list(text.encode()))
    assert not matcher.is_terminated()
