"""Masks bit by bit: against the grammar read byte by byte, and against `re` for regexes."""

import random
import re

import pytest

from inferlet import Grammar, Matcher
from inferlet.grammars import engine
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub

STATES = 4  # of each walk that are looked at in full
SCHEMAS = [
    True,
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
     "n": {"type": "integer", "minimum": -3, "maximum": 120}}, "required": ["name"]},
    {"type": "array", "items": {"enum": ["a", "ab", 1, 12, None, "é\n"]}, "minItems": 1},
    {"type": "object", "additionalProperties": {"type": "number", "minimum": 0.5}},
    {"anyOf": [{"format": "date"}, {"pattern": "^[^a]{2}x?$"}], "type": "string"},
]  # fmt: skip
GRAMMARS = [
    'root ::= "(" root ")" | [a-z]+ "x"',
    'root ::= "a" root "b" | "a" "b" | "ab" "c"',
    'root ::= s ("," " "? s)*\ns ::= "\\"" ([^"\\\\\\n] | "\\\\" ["n])* "\\"" | "[" root? "]"',
]
REGEXES = [
    "[a-f]{2,4}x?",
    "(?:ab|a)(?:c|bcd)*",
    r"-?\d+(?:\.\d{1,2})?",
    "the (?:cat|car|cart)s?",
    ".*q",
]


@pytest.fixture(scope="module")
def vocabulary(model_home):
    return Vocabulary.load(model_home / "models" / "smollm2-135m-instruct")


@pytest.fixture(autouse=True)
def model(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    yield
    handles.install(None)


def allowed(matcher):
    packed = matcher.mask()
    return {i for i in range(32 * len(packed)) if packed[i >> 5] >> (i & 31) & 1}


class Bytes:
    """Every continuation of a state, one byte token after the other."""

    def __init__(self, vocabulary, stops):
        self.texts = {}
        size, without = engine.size_of(vocabulary), engine.textless(vocabulary) | stops
        for token in range(size):
            if token not in without:
                self.texts[token] = vocabulary.token_bytes(token)
        self.single = {text[0]: token for token, text in self.texts.items() if len(text) == 1}

    def allowed(self, matcher):
        """Tokens whose bytes are accepted one by one."""
        found, prefixes = set(), {b"": matcher}
        for token, text in sorted(self.texts.items(), key=lambda item: item[1]):
            if not set(text) <= set(self.single):
                continue
            if self._reach(text, prefixes) is not None:
                found.add(token)
        return found

    def _reach(self, text, prefixes):
        if text not in prefixes:
            before = self._reach(text[:-1], prefixes)
            after = None
            if before is not None and before._engine.validate_tokens([self.single[text[-1]]]):
                after = before.fork()
                after.accept_tokens([self.single[text[-1]]])
            prefixes[text] = after
        return prefixes[text]


def walk(grammar, seed):
    """States of a random walk through allowed tokens; short tokens are taken more often."""
    chooser = random.Random(seed)
    matcher = Matcher(grammar)
    for _ in range(STATES):
        yield matcher
        options = sorted(allowed(matcher) - matcher._stops)
        if not options:
            return
        matcher.accept_tokens([chooser.choice(options)])


def made():
    yield from (Grammar.from_json_schema(schema) for schema in SCHEMAS)
    yield from (Grammar.from_ebnf(source) for source in GRAMMARS)


@pytest.mark.parametrize("index", range(len(SCHEMAS) + len(GRAMMARS)))
def test_a_token_is_allowed_iff_its_bytes_are(vocabulary, index):
    grammar = list(made())[index]
    by_bytes = Bytes(vocabulary, Matcher(grammar)._stops)
    known = {token for token, text in by_bytes.texts.items() if set(text) <= set(by_bytes.single)}
    for matcher in walk(grammar, index):
        found = allowed(matcher)
        assert found & known == by_bytes.allowed(matcher), matcher
        assert not found & engine.textless(vocabulary) - matcher._stops
        sample = random.Random(index).sample(sorted(by_bytes.texts), 400)
        for token in sample:
            assert bool(matcher._engine.validate_tokens([token])) == (token in found)


@pytest.mark.parametrize("pattern", REGEXES[:4])
def test_a_mask_of_a_regex_agrees_with_re(vocabulary, pattern):
    partial = pytest.importorskip("regex")
    matcher = Matcher(Grammar.from_regex(pattern))
    by_bytes = Bytes(vocabulary, matcher._stops)
    ascii_only = {t: text.decode() for t, text in by_bytes.texts.items() if text.isascii()}
    written = ""
    for matcher in walk(Grammar.from_regex(pattern), 7):
        written = b"".join(by_bytes.texts[token] for token in matcher._history).decode()
        expected = {
            token for token, text in ascii_only.items()
            if partial.fullmatch(pattern, written + text, partial=True)
        }  # fmt: skip
        assert allowed(matcher) & set(ascii_only) == expected
        is_whole = re.fullmatch(pattern, written) is not None
        assert matcher._stops.issubset(allowed(matcher)) == is_whole
