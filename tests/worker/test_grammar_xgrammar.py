"""A second opinion on masks: xgrammar, another engine, on what both read alike.

Bit by bit, but for the differences in `EXPLAINED`. `PIE_MASK_GRAMMARS` sets how many random grammars
are compared.
"""

import json
import os
import random
import time

import pytest

from inferlet import Grammar, GrammarError, Matcher
from inferlet.grammars import engine
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub
from tests.inferlet import grammar_oracle

xgrammar = pytest.importorskip("xgrammar")

GRAMMARS = int(os.environ.get("PIE_MASK_GRAMMARS", "24"))
STEPS = 8
PATIENCE = 1.0  # s for one mask of theirs, which grow with the text under repeated empty choices
REGEXES = ["[a-f]{2,4}x?", "(ab|a)(c|bcd)*", "-?[0-9]+(\\.[0-9]{1,2})?", "the (cat|car|cart)s?"]
RULES = [
    'root ::= "(" root ")" | [a-z]+ "x"',
    'root ::= "a" root "b" | "a" "b" | "ab" "c"',
    'root ::= s (", " s)*\ns ::= "\\"" [^"\\\\\\n]* "\\"" | "[" root? "]"',
]
SCHEMAS = [
    True,
    {"type": "number"},
    {"type": "integer"},
    {"type": "integer", "minimum": -3, "maximum": 120},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[a-f]{2,4}x?$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"const": {"a": [1, 2]}},
    {"type": "array", "items": {"enum": ["a", "ab", 1, None]}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False,
     "minItems": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": True},
    {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
     "required": ["name"]},
    {"type": "object", "properties": {"a": {"type": "boolean"},
     "b": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}},
]  # fmt: skip
# Read otherwise by xgrammar: (is it allowed here?, the text so far, the token) -> whether that is it.
EXPLAINED = {
    "they allow `\\u` escapes that are half a surrogate pair": (
        lambda ours, text, token: not ours and b"u" in (text + token)[-8:].lower()
        and any(half in (text + token)[-9:].lower() for half in (b"ud", b"\\"))
    ),
    "they allow bytes that would encode a surrogate, which are no UTF-8": (
        lambda ours, text, token: not ours and b"\xed" in (text + token)[-4:]
    ),
    "they have no integer -0": lambda ours, text, token: ours and b"-0" in text + token,
    "they allow no escapes in strings with a length": (
        lambda ours, text, token: ours and b"\\" in text + token
    ),
    "they allow raw control characters in strings with a length": (
        lambda ours, text, token: not ours and text.startswith(b'"')
        and any(byte < 0x20 or byte == 0x7F for byte in token)
    ),
    "they allow no white space within constants": (
        lambda ours, text, token: ours and text.startswith(b"{") and bool(token.strip() != token)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary(model_home):
    return Vocabulary.load(model_home / "models" / "smollm2-135m-instruct")


@pytest.fixture(autouse=True)
def model(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    yield
    handles.install(None)


@pytest.fixture(scope="module")
def words(vocabulary):
    textless = engine.textless(vocabulary)
    return [
        b"" if token in textless else vocabulary.token_bytes(token)
        for token in range(engine.size_of(vocabulary))
    ]


@pytest.fixture(scope="module")
def compiler(words):
    info = xgrammar.TokenizerInfo(words, vocab_size=len(words), stop_token_ids=[2])
    return xgrammar.GrammarCompiler(info, max_threads=1)


def members(packed, left_out):
    return {
        32 * index + bit
        for index, word in enumerate(packed) if word & 0xFFFFFFFF
        for bit in range(32) if word >> bit & 1
    } - left_out  # fmt: skip


def compare(grammar, compiled, words, seed, explained=()):
    """A walk over tokens that both allow; the reasons for which they differed."""
    ours, theirs = Matcher(grammar), xgrammar.GrammarMatcher(compiled)
    chooser, found = random.Random(seed), set()
    bitmask = xgrammar.allocate_token_bitmask(1, len(words))
    left_out = ours._stops | {token for token, text in enumerate(words) if not text}
    for _ in range(STEPS):
        start = time.process_time()
        theirs.fill_next_token_bitmask(bitmask)
        if time.process_time() - start > PATIENCE:
            break
        mine, other = members(ours.mask(), left_out), members(bitmask[0].tolist(), left_out)
        text = b"".join(words[token] for token in ours._history)
        for token in mine ^ other:
            reasons = {r for r in explained if EXPLAINED[r](token in mine, text, words[token])}
            if token in mine and theirs.accept_token(token):
                theirs.rollback(1)
                reasons.add("their mask leaves out a token that they accept")
            assert reasons, (text, words[token], token in mine, ours)
            found |= reasons
        options = sorted(mine & other)
        if not options:
            break
        token = chooser.choice(options)
        ours.accept_tokens([token])
        assert theirs.accept_token(token)
    return found


@pytest.mark.parametrize("source", [*REGEXES, *RULES])
def test_both_engines_allow_the_same_tokens(words, compiler, source):
    is_rules = "::=" in source
    make = compiler.compile_grammar if is_rules else compiler.compile_regex
    grammar = (Grammar.from_ebnf if is_rules else Grammar.from_regex)(source)
    for seed in range(3):
        found = compare(grammar, make(source), words, seed)
        assert not found or source == RULES[1]


@pytest.mark.parametrize("seed", range(GRAMMARS))
def test_both_engines_allow_the_same_tokens_of_random_grammars(words, compiler, seed):
    """Without left recursion, which xgrammar does not read."""
    draw = grammar_oracle.Draw(seed, may_recurse_left=False)
    if seed % 2:
        source = grammar_oracle.as_rules(draw.rules())
        ours, theirs = Grammar.from_ebnf, compiler.compile_grammar
    else:
        node = grammar_oracle.Node("seq", (draw.node(3), draw.node(2)))
        source = grammar_oracle.as_regex(node)
        ours, theirs = Grammar.from_regex, compiler.compile_regex
    try:
        grammar = ours(source)
    except GrammarError as error:
        assert "no text" in str(error)
        return
    explained = ["they allow bytes that would encode a surrogate, which are no UTF-8"]
    for turn in range(2):
        compare(grammar, theirs(source), words, turn, explained)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_both_engines_allow_the_same_tokens_of_schemas(words, compiler, schema):
    """xgrammar is asked for white space as here, and for no other properties than those listed."""
    compiled = compiler.compile_json_schema(
        json.dumps(schema), any_whitespace=True, max_whitespace_cnt=64, strict_mode=True
    )
    grammar = Grammar.from_json_schema(schema)
    for seed in range(max(3, GRAMMARS // 6)):
        compare(grammar, compiled, words, seed, EXPLAINED)
