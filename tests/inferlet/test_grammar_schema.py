"""JSON Schema, keyword by keyword and on real schemas: nothing that is forbidden is accepted."""

import gzip
import json
import os
from pathlib import Path

import pytest

from inferlet import Grammar, GrammarError, Matcher
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

CORPUS = Path(__file__).with_name("grammar_corpus.jsonl")
FLOOR_OF_SAMPLE = 0.95
LARGE = os.environ.get("PIE_MASKBENCH")  # a gzip of such lines
SUITE = Path(__file__).with_name("schema_suite.jsonl")
VOCABULARY = byte_vocabulary(CHATML)
STOP = 257


@pytest.fixture(autouse=True)
def bytes_model():
    handles.install(Hub(Client(), vocabulary=VOCABULARY).runtime)
    yield
    handles.install(None)


def accepts(schema, text):
    matcher = Matcher(Grammar.from_json_schema(schema))
    try:
        matcher.accept_tokens([*text.encode(), STOP])
    except GrammarError:
        return False
    return True


LISTED = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (LISTED, ['{"a":1}', '{ "a" : 1 , "b":[]}'], ['{"b":1,"a":1}', '{"a":1,"c":1}', "{}"]),
        ({**LISTED, "additionalProperties": {"type": "null"}}, ['{"a":1,"c":null}'],
         ['{"a":1,"c":1}', '{"a":1,"b":1,"a":"x"}', '{"a":1,"\\u0061":null}', '{"c":null,"a":1}']),
        ({"type": "array", "items": True}, ["[" + " " * 64 + "1]"], ["[" + " " * 65 + "1]"]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5", '"a"'], ["3", "1.5"]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
         ['{"a":1}', '{"b":1}'], ["{}", '{"a":1,"b":1}']),
        ({"not": {"type": ["string", "object"]}}, ["1", "null", "[]"], ['"a"', "{}"]),
        ({"type": "string", "not": {"enum": ["a", "b"]}}, ['"c"', '"ab"'], ['"a"', '"\\u0061"']),
        ({"type": "number", "not": {"const": 5}}, ["4", "5.5"], ["5", "5.0", "5e0", "0.5e1"]),
        ({"type": "object", "not": {"required": ["a"]}}, ["{}", '{"b":1}'], ['{"a":1}']),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, ["{}", '{"b":1}', '{"a":1,"b":1}'],
         ['{"a":1}', '{"a":1,"c":1}']),
        ({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]},
          "else": {"required": ["c"]}, "type": "object"},
         ['{"a":1,"b":0}', '{"c":1}', '{"a":2,"c":1}'], ['{"a":1}', "{}", '{"a":1,"c":2}']),
        ({"type": "object", "minProperties": 1, "maxProperties": 2, "properties":
          {"a": {}, "b": {}, "c": {}}}, ['{"a":1}', '{"b":1,"c":1}'], ["{}", '{"a":1,"b":1,"c":1}']),
        ({"minimum": 1, "exclusiveMinimum": True}, ["1.5", "2"], ["1", "1.0", "0"]),
        ({"type": "integer", "minimum": -12, "maximum": 9223372036854775807},
         ["-12", "9223372036854775807", "0"], ["-13", "9223372036854775808", "1.5"]),
        ({"multipleOf": 0.25, "type": "number"}, ["1.25", "3"], ["1.3"]),
        ({"type": "string", "pattern": "^(?!x)[a-z]+$"}, ['"ab"'], ['"xb"', '""']),
        ({"type": "string", "pattern": "a{1,255}"}, ['"xay"'], ['"xy"']),
        ({"type": "string", "minLength": 2, "maxLength": 2}, ['"é\\n"', '"\\ud83d\\ude00a"'], ['"a"']),
        ({"patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "string"}},
          "type": "object"}, ['{"a":1,"b":"x","c":[]}'], ['{"a":"x"}', '{"ab":1}', '{"b":1}']),
        ({"type": "object", "propertyNames": {"maxLength": 2}}, ['{"ab":1}'], ['{"abc":1}']),
        ({"type": "array", "contains": {"const": 1}, "maxContains": 1}, ["[1]", "[2,1]"],
         ["[]", "[2]", "[1,1]"]),
        ({"type": "array", "uniqueItems": True, "items": {"enum": [1, "a"]}}, ["[1]", '["a",1]'],
         ["[1,1]"]),
        ({"items": [{"type": "null"}], "additionalItems": False, "type": "array"}, ["[null]", "[]"],
         ["[1]", "[null,null]"]),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties":
          {"c": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}}}, ['{"c":[{"c":[]},{}]}'],
         ['{"c":[1]}']),
        ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2023-2-1"']),
        ({"type": "string", "format": "ipv6"}, ['"::1"', '"1:2:3:4:5:6:7:8"'], ['"1::2::3"']),
        ({"type": "string", "format": "iri"}, ['"http://\u00e9.x/\u03b1?\ue000"', '"a:"'],
         ['"\u00e9"', '"a:\ue000"', '"a: "']),
        ({"type": "string", "format": "iri-reference"}, ['"/\u00e9#"', '""'], ['"\\\\\u00e9"']),
        ({"type": "string", "format": "uri-template"}, ['"/{+a.b,c:3,d*}{?e}\u00e9"'],
         ['"{a"', '"{a b}"', '"{a:0}"', '"a}"']),
        ({"type": "string", "format": "email"}, ['"a.b@c.d"', '"\\"a b\\"@c"'], ['"a b@c"', '"a@"']),
        ({"type": "object", "strictProperties": True, "properties": {"a": {}, "b": {"const": 1}}},
         ['{"a":0,"b":1}'], ['{"a":0}', "{}", '{"a":0,"b":1,"c":0}', '{"a":0,"b":2}']),
        ({"type": "object", "not": {"strictProperties": True, "properties": {"a": {}}}},
         ["{}", '{"b":1}', '{"a":1,"b":1}'], ['{"a":1}']),
        ({"enum": [{"a": [1]}, [2], None]}, ['{"a":[1]}', "[2]", "null"], ['{"a":[2]}', "[]"]),
        ({"allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"maximum": 3}}}],
          "type": "object"}, ['{"a":2.5}'], ['{"a":4}', '{"a":1}', '{"b":1}']),
        ({"type": "object", "not": {"patternProperties": {"^a": {"type": "null"}}}},
         ['{"a":1}', '{"b":2,"ab":1}', '{"a":null,"ab":1,"c":2}'],
         ['{}', '{"b":1}', '{"a":null}', '{"a":1,"a":null}', '{"a":1,"b":2,"a":null}']),
        ({"type": "object", "not": {"propertyNames": {"maxLength": 1}}, "maxProperties": 2},
         ['{"ab":1}', '{"a":1,"bc":1}'], ['{}', '{"a":1}', '{"a":1,"b":2}', '{"ab":1,"c":1,"d":1}']),
        ({"type": "object", "not": {"additionalProperties": {"type": "null"}}},
         ['{"a":1}', '{"a":null,"b":2}'], ['{}', '{"a":null}', '{"a":1,"a":null}']),
        ({"type": "array", "not": {"prefixItems": [True], "items": {"type": "null"}}},
         ["[1,1]", "[null,null,0]"], ["[]", "[1]", "[1,null]"]),
        ({"type": ["array", "object"], "not": {"enum": [[1, "a"], {"a": 1}]}},
         ["[]", "[1]", '[1,"b"]', '[1,"a",2]', "{}", '{"a":2}', '{"a":1,"b":1}', '{"b":1}'],
         ['[1,"a"]', '{"a":1}']),
        ({"oneOf": [{"type": "object", "additionalProperties": {"type": "integer"}},
          {"type": "object", "required": ["a"]}]}, ['{"b":1}', '{"a":"x"}'], ['{"a":1}', '{"b":"x"}']),
        ({"type": "integer", "not": {"oneOf": [{"minimum": 3}, {"maximum": 5}]}}, ["3", "5"],
         ["2", "6"]),
        ({"type": "number", "not": {"multipleOf": 1}}, ["1.5"], ["1", "2.0"]),
        ({"type": "array", "not": {"contains": {"const": 1}, "minContains": 2}},
         ["[]", "[1]", "[1,2]"], ["[1,1]", "[1,2,1]"]),
        ({"type": "object", "patternProperties": {f"^{c}$": {"const": c} for c in "abcdefghijkl"},
          "additionalProperties": False}, ['{"a":"a","l":"l"}'], ['{"a":"b"}', '{"m":"m"}']),
        ({"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}], "anyOf": [
          {"properties": {"b": {"const": 1}}, "required": ["b"]}, {"required": ["a"]}],
          "unevaluatedProperties": False},
         ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'], ['{"a":1,"c":1}', '{"a":1,"b":2}', "{}"]),
        ({"type": "array", "prefixItems": [True], "if": {"prefixItems": [{"const": 1}]},
          "then": {"prefixItems": [True, {"type": "null"}]}, "unevaluatedItems": False},
         ["[]", "[1,null]", "[2]"], ["[2,null]", "[1,2]", "[1,null,1]"]),
        ({"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": [True, 1]}],
          "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 1},
         ["[true]", "[false,true]", "[true,1,3,2]"], ["[]", "[true,true]", "[true,1,1]", "[1]"]),
        ({"type": "array", "prefixItems": [True], "contains": {"type": "string"},
          "unevaluatedItems": {"const": 0}}, ['["a"]', '[1,"a",0]'], ["[1]", '["a",1]', '[1,1,"a"]']),
        ({"type": "object", "properties": {"a": {}}, "contains": {"type": "array"},
          "unevaluatedProperties": False}, ['{"a":1}'], ['{"b":1}', '{"a":1,"b":[]}']),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "array",
          "contains": {"type": "string"}, "unevaluatedItems": {"const": 0}, "items": [True]},
         ['["a"]', '["a",0]'], ['["a","a"]', "[0]"]),
        ({"$id": "http://x/strict", "$dynamicAnchor": "node", "$ref": "tree",
          "unevaluatedProperties": False, "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "node",
          "type": "object", "properties": {"data": {}, "kids": {"type": "array",
          "items": {"$dynamicRef": "#node"}}}, "additionalProperties": True}}},
         ['{"data":1,"kids":[{"data":2},{"kids":[]}]}'], ['{"kids":[1]}']),
        ({"$id": "http://x/strict", "$dynamicAnchor": "item", "type": "null", "$defs": {
          "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#item"},
          "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}}}}, "not": {"$ref": "list"}},
         ["null"], ["[]", '["a"]']),
        ({"$id": "http://x/numbers", "$ref": "list", "$defs": {
          "n": {"$dynamicAnchor": "item", "type": "number"},
          "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#item"},
          "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}}}}},
         ["[1,2]", "[]"], ['["a"]']),
        ({"$id": "urn:uuid:1", "$defs": {"a": {"$id": "urn:uuid:2", "$ref": "#/$defs/b",
          "$defs": {"b": {"type": "null"}}}, "b": {"type": "string"}}, "$ref": "#/$defs/a"},
         ["null"], ['"a"']),
        ({"$dynamicAnchor": "n", "type": "object", "additionalProperties": {"$dynamicRef": "#n"}},
         ['{"a":{"b":{}}}'], ['{"a":1}', "[]"]),
        ({"items": {"$ref": "#/parts/x"}, "parts": {"x": {"type": "null"}}, "type": "array"},
         ["[null]"], ["[1]"]),
    ],
)  # fmt: skip
def test_a_keyword_is_enforced(schema, good, bad):
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"items": {"uniqueItems": True}}, "`#/items`: `uniqueItems`"),
        ({"properties": {"a/b": {"$ref": "http://x.y/z"}}}, "`#/properties/a~1b`: `\\$ref`"),
        ({"format": "color"}, "`#`: `format` 'color'"),
        ({"divisibleBy": 2}, "`divisibleBy`"),
        ({"$dynamicRef": "#a"}, "`\\$dynamicRef`"),
        (
            {
                "$id": "http://x/a",
                "$recursiveRef": "#",
                "$recursiveAnchor": True,
                "$defs": {"b": {"$id": "b", "$recursiveAnchor": True}},
            },
            "`\\$recursiveRef` is not supported in a",
        ),
        ({"minlength": 2}, "write `minLength`"),
        ({"not": {"unevaluatedItems": False, "contains": {"const": 1}}}, "`unevaluatedItems`"),
        ({"items": {"enum": list(range(11))}, "uniqueItems": True}, "`uniqueItems`"),
        ({"type": "object", "minProperties": 2}, "`minProperties`"),
        ({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}, "`oneOf`"),
        ({"type": "strin"}, "`strin`"),
        ({"type": "string", "pattern": "(?<=a)b"}, "`pattern`"),
        ({"required": True}, "`required`"),
        ({"$ref": "#/$defs/no"}, "points to nothing"),
        ({"$ref": "#"}, "refers to itself"),
        ('{"type": "null",}', "line 1, column"),
        ("[]", "a schema is an object or a boolean"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name_and_place(schema, message):
    with pytest.raises(GrammarError, match=message):
        Grammar.from_json_schema(schema)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"frobnicate": 1}, "#"),
        ({"properties": {"a": {"frobnicate": 1}}}, "#/properties/a"),
        ({"items": {"anyOf": [{}, {"frobnicate": {}}]}}, "#/items/anyOf/1"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"frobnicate": True}}}, "#/$defs/x"),
        ({"not": {"type": "null", "frobnicate": 0}}, "#/not"),
        ({"oneOf": [{"type": "null"}, {"frobnicate": 0}]}, "#/oneOf/1"),
        ({"patternProperties": {"^a": {"frobnicate": 0}}}, "#/patternProperties/^a"),
        ({"$schema": "https://example.org/mine", "frobnicate": 0}, "#"),
    ],
)
def test_an_unknown_word_is_named_with_its_place(schema, path):
    with pytest.raises(GrammarError) as error:
        Grammar.from_json_schema(schema)
    assert f"schema at `{path}`: `frobnicate` is no keyword" in str(error.value)


def test_words_of_catalogues_describe_when_they_hold_texts():
    words = {"version": "1.0", "aliases": ["x"], "@context": {"a": "b"}, "name": "n"}
    assert accepts({"type": "null", **words}, "null") and not accepts(
        {"type": "null", **words}, "1"
    )
    for misplaced in ({"type": "string"}, True, [{"type": "string"}], None):
        with pytest.raises(GrammarError, match="`name` is no keyword"):
            Grammar.from_json_schema({"type": "object", "name": misplaced})


def test_unions_are_told_without_the_parts_of_their_members():
    """Twelve choices between three: most of their cases are parts of others."""
    names = "abcdefghijkl"
    other = [{"required": ["z"]}, {"maxProperties": 0}]
    rules = [{"anyOf": [{"required": [name]}, *other]} for name in names]
    schema = {"type": "object", "allOf": rules}
    assert accepts(schema, "{}") and accepts(schema, '{"z":1}')
    assert not accepts(schema, '{"a":1}')


def test_a_schema_may_refer_to_itself_in_a_oneof_of_like_branches():
    one = {"type": "object", "properties": {"k": {"const": 1}, "x": {"$ref": "#/$defs/t"}},
           "required": ["k", "x"]}  # fmt: skip
    two = {**one, "properties": {"k": {}, "x": {"$ref": "#/$defs/t"}, "z": {}},
           "required": ["k", "x", "z"]}  # fmt: skip
    schema = {"$ref": "#/$defs/t", "$defs": {"t": {"oneOf": [one, two, {"type": "null"}]}}}
    assert accepts(schema, '{"k":2,"x":{"k":1,"x":null},"z":0}')
    assert not accepts(schema, '{"k":2,"x":null}')


def test_names_of_places_are_found_however_their_keywords_are_spelt():
    for anchor in ("$anchor", "\\u0024anchor"):
        text = '{"$defs": {"a": {"%s": "x", "type": "null"}}, "$ref": "#x"}' % anchor
        assert accepts(text, "null") and not accepts(text, "1")


def test_annotations_and_notes_assert_nothing():
    words = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
             "$id", "$comment", "x-any", "x-guidance", "_note", "example")  # fmt: skip
    noise = {word: "t" for word in words}
    assert accepts({"type": "null", **noise, "x-guidance": {"lenient": True}}, "null")
    assert not accepts({"type": "null", **noise}, "1")


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07", "draft/2020-12"])
def test_a_document_that_names_its_draft_may_hold_words_and_formats_that_it_does_not_define(draft):
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "type": "string"}
    assert accepts({**schema, "frobnicate": 1, "format": "color"}, '"x"')
    assert not accepts({**schema, "frobnicate": 1, "format": "color"}, "1")
    assert not accepts({**schema, "format": "date"}, '"x"')
    with pytest.raises(GrammarError, match="`minLength`"):
        Grammar.from_json_schema({**schema, "minlength": 1})
    for defined in ("regex", "idn-hostname", "idn-email"):  # by the draft or a later one
        with pytest.raises(GrammarError, match=f"'{defined}' is not supported"):
            Grammar.from_json_schema({**schema, "format": defined})
    with pytest.raises(GrammarError, match="no value"):
        Grammar.from_json_schema({**schema, "not": {"type": "null"}, "allOf": [{"not": schema}]})
    assert accepts({**schema, "not": {"format": "date"}}, '"x"')


def rows():
    return [json.loads(line) for line in CORPUS.read_text().splitlines()]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_real_schemas_accept_no_invalid_instance(row):
    try:
        Grammar.from_json_schema(row["schema"])
    except GrammarError:
        return
    for test in row["tests"]:
        if not test["valid"]:
            assert not accepts(row["schema"], json.dumps(test["data"], ensure_ascii=False))


def right_of(row):
    """How many tests of a row have the right verdict, and of how many; None: it is refused."""
    try:
        Grammar.from_json_schema(row["schema"])
    except GrammarError:
        return None
    tests = row["tests"]
    verdicts = [accepts(row["schema"], json.dumps(t["data"], ensure_ascii=False)) for t in tests]
    pairs = list(zip(verdicts, tests, strict=True))
    assert not any(verdict and not test["valid"] for verdict, test in pairs), row["id"]
    return sum(verdict == test["valid"] for verdict, test in pairs), len(tests)


def wholly_right(lines):
    found = [right_of(json.loads(line)) for line in lines]
    return sum(one is not None and one[0] == one[1] for one in found) / len(found)


def test_most_real_schemas_are_wholly_right():
    assert wholly_right(CORPUS.read_text().splitlines()) >= FLOOR_OF_SAMPLE


@pytest.mark.slow
@pytest.mark.skipif(not LARGE, reason="PIE_MASKBENCH names no corpus")
def test_88_percent_of_a_large_corpus_are_wholly_right():
    with gzip.open(LARGE, "rt") as lines:
        assert wholly_right(lines) >= 0.88


def test_the_test_suite_of_json_schema_passes_where_its_keywords_are_supported():
    """Draft 2020-12, the required part. © 2012 Julian Berman, MIT licence. A refused schema has
    its tests right when none of them is valid."""
    right = total = 0
    for row in map(json.loads, SUITE.read_text().splitlines()):
        total += len(row["tests"])
        found = right_of(row)
        if found is not None:
            right += found[0]
        elif not any(test["valid"] for test in row["tests"]):
            right += len(row["tests"])
    assert total == 1257 and right >= 1105
