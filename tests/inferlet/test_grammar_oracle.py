"""Masks bit by bit on random grammars, against an oracle that tries the bytes of every token.

`PIE_MASK_GRAMMARS` sets how many grammars are drawn; the default keeps the file at seconds.
"""

import os
import random

import pytest

from inferlet import Grammar, GrammarError, Matcher
from inferlet.grammars import engine
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub
from tests.inferlet import grammar_oracle
from tests.inferlet.grammar_oracle import Node, Oracle
from tests.inferlet.test_grammar_differential import Draw as DrawSchema

GRAMMARS = int(os.environ.get("PIE_MASK_GRAMMARS", "24"))
STEPS = 6


@pytest.fixture(scope="module")
def vocabulary(model_home):
    return Vocabulary.load(model_home / "models" / "smollm2-135m-instruct")


@pytest.fixture(autouse=True)
def model(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    yield
    handles.install(None)


class Trie:
    """The texts of all tokens, so that a beginning which fails is tried once."""

    def __init__(self, vocabulary, stops, keep=lambda token: True):
        self.children, self.tokens = {}, []
        without = engine.textless(vocabulary) | stops
        for token in range(engine.size_of(vocabulary)):
            if token in without or not keep(token):
                continue
            here = self
            for byte in vocabulary.token_bytes(token):
                here = here.children.setdefault(byte, Trie.__new__(Trie))
                here.__dict__.setdefault("children", {})
                here.__dict__.setdefault("tokens", [])
            here.tokens.append(token)

    def allowed(self, state, feed):
        """Tokens after which the text may still be completed."""
        found, todo = set(), [(self, state)]
        while todo:
            node, state = todo.pop()
            for byte, child in node.children.items():
                after = feed(state, byte)
                if after is not None:
                    found.update(child.tokens)
                    todo.append((child, after))
        return found


@pytest.fixture(scope="module")
def trie(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    return Trie(vocabulary, Matcher(Grammar.json())._stops)


def bits(matcher):
    packed = matcher.mask()
    return {
        32 * index + bit
        for index, word in enumerate(packed) if word
        for bit in range(32) if word >> bit & 1
    }  # fmt: skip


def walk(matcher, state, trie, vocabulary, feed, is_complete, chooser):
    for _ in range(STEPS):
        found = bits(matcher)
        expected = trie.allowed(state, feed)
        stops = matcher._stops if is_complete(state) else set()
        assert found == expected | stops, (found ^ (expected | stops), matcher)
        if not expected:
            assert matcher.is_terminated()
            return
        # Short tokens more often: long ones end the walk soon.
        options = sorted(expected, key=lambda token: len(vocabulary.token_bytes(token)))
        token = options[min(int(chooser.expovariate(8 / len(options))), len(options) - 1)]
        matcher.accept_tokens([token])
        for byte in vocabulary.token_bytes(token):
            state = feed(state, byte)


@pytest.mark.parametrize("seed", range(GRAMMARS))
def test_masks_of_random_regexes_and_rules_are_those_of_the_oracle(seed, vocabulary, trie):
    draw = grammar_oracle.Draw(seed)
    if seed % 2:
        rules = draw.rules()
        source, make = grammar_oracle.as_rules(rules), Grammar.from_ebnf
    else:
        node = Node("seq", (draw.node(3), draw.node(2)))
        rules = {"root": node}
        source, make = grammar_oracle.as_regex(node), Grammar.from_regex
    oracle = Oracle(rules)
    state = oracle.start()
    if state is None:
        with pytest.raises(GrammarError, match="no text"):
            make(source)
        return
    for turn in range(2):
        chooser = random.Random(turn)
        walk(Matcher(make(source)), state, trie, vocabulary, oracle.feed, oracle.is_complete,
             chooser)  # fmt: skip


@pytest.fixture(scope="module")
def few(vocabulary):
    """All tokens of one byte, and some of the others."""
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    chosen = set(random.Random(0).sample(range(engine.size_of(vocabulary)), 2500))
    return Trie(
        vocabulary,
        Matcher(Grammar.json())._stops,
        lambda token: token in chosen or len(vocabulary.token_bytes(token)) == 1,
    )


@pytest.mark.parametrize("seed", range(GRAMMARS // 3))
def test_masks_of_random_schemas_are_those_of_their_bytes(seed, vocabulary, few):
    """Here the oracle is a matcher that is only ever asked for one byte more."""
    try:
        grammar = Grammar.from_json_schema(DrawSchema(1000 + seed).schema())
    except GrammarError:
        return
    single = {byte: child.tokens[0] for byte, child in few.children.items() if child.tokens}

    def feed(state, byte):
        token = single.get(byte)
        if token is None or not state._engine.validate_tokens([token]):
            return None
        after = state.fork()
        after.accept_tokens([token])
        return after

    known = few.allowed(0, lambda state, byte: state if byte in single else None)
    chooser = random.Random(seed)
    matcher, state = Matcher(grammar), Matcher(grammar)
    for _ in range(STEPS):
        found, expected = bits(matcher) & known, few.allowed(state, feed)
        assert found == expected, (found ^ expected, matcher)
        if not expected:
            return
        token = chooser.choice(sorted(expected))
        matcher.accept_tokens([token])
        for byte in vocabulary.token_bytes(token):
            state = feed(state, byte)
