"""Grammars and matchers (contract, 6): what is accepted, undone, refused; rows G1 to G16."""

import json

import pytest

from inferlet import Grammar, GrammarError, InferletError, Matcher, model
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

STOP = 257  # <|im_end|> of the byte vocabulary
VOCABULARY = byte_vocabulary(CHATML)


@pytest.fixture(autouse=True)
def bytes_model():
    handles.install(Hub(Client(), vocabulary=VOCABULARY).runtime)
    yield
    handles.install(None)


def accepts(grammar, text):
    """Byte by byte, each allowed by the mask before, and complete at the end."""
    matcher = Matcher(grammar)
    for byte in text.encode("utf-8", "surrogatepass"):
        is_allowed = bool(matcher.mask()[byte >> 5] >> (byte & 31) & 1)
        if not is_allowed:
            with pytest.raises(GrammarError):
                matcher.accept_tokens([byte])
            return False
        matcher.accept_tokens([byte])
    return bool(matcher.mask()[STOP >> 5] >> (STOP & 31) & 1)


def schema_accepts(schema, value):
    text = value if isinstance(value, str) else json.dumps(value)
    return accepts(Grammar.from_json_schema(schema), text)


# ---- rows of the table of cases, with neighbours


@pytest.mark.parametrize(
    "text", ['"a\tb"', '"a\nb"', '"\x00"', '"\x1f"', '"\\x"', '"\\u12"', "'a'"]
)
def test_g1_raw_control_characters_and_bad_escapes_are_no_string(text):
    assert not schema_accepts({"type": "string"}, text)


@pytest.mark.parametrize(
    "text", ['"a\\tb"', '"\x7f"', '"é"', '"\\u00e9"', '"\\/"', '""', '"\\ud83d\\ude00"']
)
def test_g1_escapes_and_other_characters_are(text):
    assert schema_accepts({"type": "string"}, text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": []},
        {"type": "string", "enum": [1]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "string", "minLength": 2, "maxLength": 1},
        {"type": "string", "pattern": "^a", "maxLength": 0},
        {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        {"required": ["a"], "properties": {"a": False}, "type": "object"},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"allOf": [{"type": "string"}, {"type": "null"}]},
        {"not": {}},
        False,
    ],
)
def test_g2_an_unsatisfiable_schema_is_an_error(schema):
    with pytest.raises(GrammarError):
        Grammar.from_json_schema(schema)


def test_g3_any_object():
    for text in ("{}", "{ }", '{"a":1,"b":[{}]}', '{"\\u0061": null}'):
        assert schema_accepts({"type": "object"}, text)
    for text in ("[]", "{,}", '{"a"}', '{"a":1,}', ' {"a":1}'):
        assert not schema_accepts({"type": "object"}, text)


def test_g5_nothing_follows_the_last_character_of_json():
    assert not schema_accepts({"type": "object"}, "{}\n")
    assert not schema_accepts(True, "[1] ")


def test_g7_ids_without_text_are_masked_and_refused():
    matcher = Matcher(Grammar.json())
    vocab = model.output_vocab_size()
    for token in (256, 258, vocab - 1, vocab, 10**9, -1):
        if 0 <= token < vocab:
            assert not matcher.mask()[token >> 5] >> (token & 31) & 1
        with pytest.raises(GrammarError, match="index 0"):
            matcher.accept_tokens([token])
    assert len(matcher.mask()) == -(-vocab // 32)


@pytest.mark.parametrize("count", [4, 5, -1])
def test_g8_rollback_beyond_the_history_changes_nothing(count):
    matcher = Matcher(Grammar.json())
    matcher.accept_tokens([*b"[1,"])
    before = matcher.mask()
    with pytest.raises(ValueError):
        matcher.rollback(count)
    assert matcher.mask() == before
    matcher.rollback(3)
    assert matcher.mask() == Matcher(Grammar.json()).mask()


def test_g14_a_forbidden_token_is_named_and_nothing_of_its_call_is_accepted():
    matcher = Matcher(Grammar.from_regex("[0-9]+x"))
    before = matcher.mask()
    with pytest.raises(GrammarError, match="at index 2"):
        matcher.accept_tokens([*b"12a"])
    assert matcher.mask() == before
    with pytest.raises(GrammarError, match=r"index 2 is a stop token"):
        matcher.accept_tokens([*b"12", STOP])
    assert matcher.mask() == before
    with pytest.raises(GrammarError, match="index 4 comes after a stop token"):
        matcher.accept_tokens([*b"12x", STOP, *b"1"])
    matcher.accept_tokens([*b"12x", STOP])
    with pytest.raises(GrammarError, match="index 0 comes after a stop token"):
        matcher.accept_tokens([*b"1"])
    assert set(matcher.mask()) == {0} and matcher.is_terminated()


def test_g16_patterns_search_prefixes_of_tuples_are_legal_and_a_dot_is_no_newline():
    assert schema_accepts({"type": "string", "pattern": "a"}, '"ba"')
    assert schema_accepts({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, "[1]")
    assert not accepts(Grammar.from_regex("."), "\n")
    assert accepts(Grammar.from_regex("."), "é")


# ---- matchers


def test_a_stop_is_allowed_iff_the_text_is_complete():
    matcher = Matcher(Grammar.from_regex("[0-9]+"))
    assert not matcher.mask()[STOP >> 5] >> (STOP & 31) & 1
    matcher.accept_tokens([*b"1"])
    assert matcher.mask()[STOP >> 5] >> (STOP & 31) & 1 and not matcher.is_terminated()
    matcher.accept_tokens([STOP])
    assert matcher.is_terminated()
    matcher.rollback(1)
    assert not matcher.is_terminated()
    matcher.accept_tokens([*b"2"])


@pytest.mark.parametrize("text", ["yes", "no"])
def test_a_choice_is_terminated_at_its_last_character(text):
    matcher = Matcher(Grammar.from_regex("(yes|no)"))
    matcher.accept_tokens([*text[:-1].encode()])
    assert not matcher.is_terminated()
    matcher.accept_tokens([*text[-1:].encode()])
    assert matcher.is_terminated()


def test_a_fork_is_independent_and_has_the_history():
    one = Matcher(Grammar.json())
    one.accept_tokens([*b'{"a":'])
    two = one.fork()
    two.accept_tokens([*b"1}"])
    assert two.is_terminated() and not one.is_terminated()
    two.rollback(7)
    assert two.mask() == Matcher(Grammar.json()).mask()
    one.accept_tokens([*b'"x"}'])
    assert one.is_terminated()
    one.reset()
    with pytest.raises(ValueError):
        one.rollback(1)


def test_the_whole_history_can_be_undone_and_redone():
    text = [*json.dumps([{"a": i, "b": ["x" * (i % 7)]} for i in range(60)]).encode()]
    matcher = Matcher(Grammar.json())
    matcher.accept_tokens(text)
    for keep in (1000, 500, 77, 0):
        matcher.rollback(len(matcher._history) - keep)
        fresh = Matcher(Grammar.json())
        fresh.accept_tokens(text[:keep])
        assert matcher.mask() == fresh.mask()
        matcher.accept_tokens(text[keep:])


def test_the_mask_belongs_to_the_caller():
    matcher = Matcher(Grammar.json())
    matcher.mask()[:] = []
    assert len(matcher.mask()) == -(-model.output_vocab_size() // 32)


def test_equal_sources_share_one_compiled_object():
    assert Grammar.from_json_schema('{"type": "null"}') is Grammar.from_json_schema(
        {"type": "null"}
    )
    assert Grammar.from_regex("a") is Grammar.from_regex("a")
    assert Grammar.json() is Grammar.from_json_schema(True) is Grammar.json()


def test_forced_tokens_can_be_taken_at_once():
    matcher = Matcher(
        Grammar.from_json_schema({"properties": {"name": {"const": 1}}, "type": "object"})
    )
    matcher.accept_tokens([*b'{"'])
    forced = matcher.forced_tokens()
    assert bytes(forced) == b'name"'
    matcher.accept_tokens(forced)
    assert Matcher(Grammar.json()).forced_tokens() == []


def test_explain_says_what_is_expected_and_what_is_missing():
    schema = {"type": "object", "properties": {"value": {"type": "integer"}, "unit": {}}}
    matcher = Matcher(Grammar.from_json_schema({**schema, "required": ["value", "unit"]}))
    matcher.accept_tokens([*b'{"value":'])
    assert matcher.explain() == (
        "one of a digit, `-` or white space; the required property `unit` is still missing"
    )
    matcher.accept_tokens([*b'1,"unit":2'])
    assert "missing" not in matcher.explain() and "`}`" in matcher.explain()
    matcher.accept_tokens([*b"}"])
    assert matcher.explain() == "nothing but the end: the text is complete"


def test_wrong_arguments_are_type_errors():
    for call in (Grammar.from_regex, Grammar.from_ebnf, Grammar.from_json_schema, Matcher):
        with pytest.raises(TypeError):
            call(5)
    with pytest.raises(TypeError):
        Matcher(Grammar.json()).accept_tokens("abc")
    with pytest.raises(GrammarError):
        Grammar.from_json_schema('{"a": ')
    assert issubclass(GrammarError, InferletError)


# ---- regexes


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[a-c]{2,3}", ["ab", "abc"], ["a", "abcd"]),
        ("a{2}|b{3,}", ["aa", "bbb", "bbbbb"], ["a", "bb", "aabbb"]),
        (r"\d+\.\w?\s", ["1.a ", "12.\t"], ["١.a ", "1.é ", "1a"]),
        ("^(?:x|y)+?$", ["x", "xy"], ["", "z"]),
        (r"\x41\u00e9\\\/[\]\-a]", ["Aé\\/]", "Aé\\/-"], ["A"]),
        ("[^a]", ["b", "\n", "😀"], ["a", "ab"]),
        ("(a|ab)(c|bcd)", ["ac", "abcd", "abbcd"], ["ab", "abc d"]),
        ("", [""], ["a"]),
    ],
)
def test_a_regex_matches_as_a_whole(pattern, good, bad):
    grammar = Grammar.from_regex(pattern)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("(a", "position 0"), ("a)", "position 1"), ("[a", "position 0"), ("a**", "position 2"),
        ("*a", "position 0"), ("[z-a]", "position 1"), ("a{3,2}", "position 1"),
        ("x(?=a)", "position 1"), ("(?<!a)b", "position 0"), (r"(a)\1", "position 3"),
        (r"\bx", "position 0"), ("a^b", "position 1"), ("a$b", "position 1"), (r"\q", "position 0"),
        ("a\\", "position 2"),
    ],
)  # fmt: skip
def test_a_bad_regex_is_an_error_at_its_position(pattern, where):
    with pytest.raises(GrammarError, match=where):
        Grammar.from_regex(pattern)


# ---- EBNF

EXPRESSIONS = """
root ::= expression   # left recursion
expression ::= expression [+-] term | term
term ::= term "*" factor
       | factor
factor ::= [0-9]+ ("." [0-9]{1,2})? | "(" expression ")"
"""


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        (EXPRESSIONS, ["1", "1+2*3", "(1-2.5)*33"], ["1+", "(1", "1.234", ")"]),
        ('root ::= [a-z]+ "x"', ["ax", "xx", "axbx"], ["x", "ab"]),
        ('root ::= "(" root ")" | [a-z]+ "x"', ["(axx)", "xx"], ["(x)", "(ax"]),
        ('root ::= "a" root "b" | "a" "b" | "ab" "c"', ["ab", "abc", "aabcb"], ["a", "aab"]),
        ('root ::= ("a" root)? "b"?', ["", "b", "aaab", "abb"], ["ba", "c"]),
        (
            'root ::= word (" " word)* "!"?\nword ::= [a-z]{2,3}',
            ["ab abc!", "abc"],
            ["a", "ab  ab"],
        ),
        (r'root ::= "\"\n\x41\u00e9" [^\]\\]', ['"\nAéx'], ['"\nAé]']),
        ('root ::= root root | "a" | ""', ["", "aaa"], ["b"]),
        ('root ::= list\nlist ::= "[" (list ("," list)*)? "]"', ["[]", "[[],[[]]]"], ["[", "[,]"]),
    ],
)
def test_a_grammar_means_what_is_written(source, good, bad):
    grammar = Grammar.from_ebnf(source)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('root ::= "a" b', "line 1, column 14: the rule `b` is not defined"),
        ('start ::= "a"', "no rule `root`"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule `root` is defined twice"),
        ('root ::= ("a"', "line 1, column 10"),
        ('root ::= "a\n"', "line 1, column 10"),
        ('root ::= "a"\n  ) ', "line 2, column 3"),
        ('root ::= root "a"', "no text can be derived"),
        ("", "no rule `root`"),
    ],
)
def test_a_bad_grammar_is_an_error_at_its_position(source, message):
    with pytest.raises(GrammarError, match="(?s)" + message.replace("(", r"\(")):
        Grammar.from_ebnf(source)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grammar.from_json_schema('{"items":' * 10_000 + "{}" + "}" * 10_000),
        lambda: Grammar.from_json_schema({"$ref": "#"}),
        lambda: Grammar.from_json_schema({"enum": [f"{n:09d}" for n in range(20_000)]}),
        lambda: Grammar.from_json_schema('{"minimum": 1e999999999}'),
        lambda: Grammar.from_json_schema({"type": "integer", "multipleOf": 9_999_991}),
        lambda: Grammar.from_regex("((a{0,100}){0,100}){0,100}"),
        lambda: Grammar.from_regex("(.*a){20}.{500}b(.*c){20}"),
        lambda: Grammar.from_ebnf("root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000),
        lambda: Grammar.from_ebnf(
            "root ::= r0\n"
            + "".join(f'r{n} ::= "a" r{n + 1}\n' for n in range(5000))
            + 'r5000 ::= "b"'
        ),
    ],
)
def test_a_hostile_grammar_is_a_grammar_or_an_error(make):
    try:
        matcher = Matcher(make())
        assert any(matcher.mask())
    except GrammarError as error:
        assert "hint: " in str(error) or "position" in str(error)
