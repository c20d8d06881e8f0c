"""A second opinion on masks: xgrammar, another engine, on grammars that both read alike."""

import random

import pytest

from inferlet import Grammar, Matcher
from inferlet.grammars import engine
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub

xgrammar = pytest.importorskip("xgrammar")

REGEXES = ["[a-f]{2,4}x?", "(ab|a)(c|bcd)*", "-?[0-9]+(\\.[0-9]{1,2})?", "the (cat|car|cart)s?"]
GRAMMARS = [
    'root ::= "(" root ")" | [a-z]+ "x"',
    'root ::= "a" root "b" | "a" "b" | "ab" "c"',
    'root ::= s (", " s)*\ns ::= "\\"" [^"\\\\\\n]* "\\"" | "[" root? "]"',
]
# Not compared: JSON schemas. xgrammar spells keys and white space otherwise, has properties that
# are not listed by default, and bounds no run of white space.


@pytest.fixture(scope="module")
def vocabulary(model_home):
    return Vocabulary.load(model_home / "models" / "smollm2-135m-instruct")


@pytest.fixture(scope="module")
def compiler(vocabulary):
    size = engine.size_of(vocabulary)
    words = [
        b"" if token in engine.textless(vocabulary) else vocabulary.token_bytes(token)
        for token in range(size)
    ]
    info = xgrammar.TokenizerInfo(words, vocab_size=size, stop_token_ids=[2])
    return xgrammar.GrammarCompiler(info, max_threads=1)


@pytest.mark.parametrize("source", [*REGEXES, *GRAMMARS])
def test_both_engines_allow_the_same_tokens(vocabulary, compiler, source):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    try:
        is_rules = "::=" in source
        ours = Matcher((Grammar.from_ebnf if is_rules else Grammar.from_regex)(source))
        make = compiler.compile_grammar if is_rules else compiler.compile_regex
        theirs = xgrammar.GrammarMatcher(make(source))
        chooser = random.Random(3)
        size = engine.size_of(vocabulary)
        bitmask = xgrammar.allocate_token_bitmask(1, size)
        for _ in range(12):
            theirs.fill_next_token_bitmask(bitmask)
            packed = [word & 0xFFFFFFFF for word in bitmask[0].tolist()]
            mine = ours.mask()
            stops = ours._stops | engine.textless(vocabulary)
            for token in stops:
                packed[token >> 5] &= ~(1 << (token & 31))
                mine[token >> 5] &= ~(1 << (token & 31))
            assert mine == packed, ours
            options = [t for t in range(size) if mine[t >> 5] >> (t & 31) & 1]
            if not options:
                break
            token = chooser.choice(options)
            ours.accept_tokens([token])
            assert theirs.accept_token(token)
    finally:
        handles.install(None)
