"""`tools.Decoder` (contract, 4): rows T1 to T18 of the cases, and the markups of all families."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet import GrammarError, model, tools
from inferlet.formats import calls
from inferlet.runtime import handles
from inferlet.testing import byte_vocabulary
from tests.inferlet.call_support import (
    STOP,
    VOCABULARIES,
    decode,
    hermes,
    install,
    same_for_all_cuts,
)
from tests.inferlet.call_writers import WRITERS, vocabulary_of

ADD = {"name": "add"}


@pytest.fixture(autouse=True)
def hermes_model():
    install(VOCABULARIES["hermes"])
    yield
    handles.install(None)


# ---- the decoder, Hermes form


def test_t1_the_last_brace_is_kept():
    head = '<tool_call>\n{"name": "f", "arguments": {"id": 42'
    assert decode([head.encode(), b"}\n}\n</tool_call>"]) == [("f", '{"id":42}')]
    assert decode([head.encode(), b"}}", b"\n</tool_call>"]) == [("f", '{"id":42}')]


@pytest.mark.parametrize("body", ['"arguments": {}', '"arguments": { }', '"arguments": {\n}'])
def test_t2_empty_arguments_are_an_empty_object(body):
    text = f'<tool_call>\n{{"name": "list_tables", {body}}}\n</tool_call>'
    assert same_for_all_cuts(text) == [("list_tables", "{}")]


def test_arguments_may_be_left_out_where_there_are_none():
    assert same_for_all_cuts('<tool_call>{"name": "f"}</tool_call>') == [("f", "{}")]


def test_t4_values_come_once_as_they_were_generated():
    arguments = '{"wd": 23, "sd": 0.8, "injection": "ZSJB39"}'
    expected = '{"wd":23,"sd":0.8,"injection":"ZSJB39"}'
    assert same_for_all_cuts(hermes("f", arguments)) == [("f", expected)]


def test_t5_two_calls_in_one_chunk_come_one_a_feed():
    decoder = tools.Decoder()
    text = hermes("f", '{"a": 1}') + "\n" + hermes("g", '{"b": 2}')
    first = decoder.feed(model.encode(text))
    second = decoder.feed([])
    assert first == tools.Event.Call(tools.Call("f", '{"a":1}'))
    assert second == tools.Event.Call(tools.Call("g", '{"b":2}'))
    assert decoder.feed([]) == tools.Event.Start()


def test_t7_a_call_after_one_without_arguments_keeps_its_own():
    text = hermes("f", "{}") + hermes("g", '{"b": [1, {"c": null}]}')
    assert same_for_all_cuts(text) == [("f", "{}"), ("g", '{"b":[1,{"c":null}]}')]


def test_t9_three_calls_of_one_tool_come_in_order():
    text = "\n".join(hermes("f", f'{{"x": "{letter}"}}') for letter in "ABC")
    expected = [("f", f'{{"x":"{letter}"}}') for letter in "ABC"]
    assert same_for_all_cuts(text) == expected


def test_t13_a_call_is_found_between_prose():
    assert same_for_all_cuts("before" + hermes("f", "{}") + "after") == [("f", "{}")]


@pytest.mark.parametrize(
    ("number", "kind"), [("1e20", float), ("1E400", float), ("7", int), ("-0.0", float)]
)
def test_t17_numbers_keep_their_spelling(number, kind):
    [(_, arguments)] = same_for_all_cuts(hermes("f", f'{{"n": {number}}}'))
    assert arguments == f'{{"n":{number}}}'
    assert type(json.loads(arguments)["n"]) is kind


@pytest.mark.parametrize("number", ["1e20", "-1.50", "7", "1E400", "-0.0", "9" * 5000])
@pytest.mark.parametrize("family", WRITERS)
def test_t17_numbers_keep_their_spelling_in_every_markup(family, number):
    install(vocabulary_of(family))
    text = WRITERS[family]({"n": [1.25]}).replace("[1.25]", number)
    found = decode([text.encode()])
    is_refused = family == "pythonic" and len(number) > 4000  # by Python's own reader
    assert found == ([] if is_refused else [("f", f'{{"n":{number}}}')])


@pytest.mark.parametrize("end", [[], [STOP]])
def test_t18_a_call_that_was_cut_off_is_none(end):
    text = '<tool_call>\n{"name": "f", "arguments": {"city": "San Fr'
    assert decode([text.encode(), bytes(0)]) == []
    decoder = tools.Decoder()
    assert decoder.feed(model.encode(text)) == tools.Event.Start()
    assert decoder.inside
    assert decoder.feed(end) == tools.Event.Start()
    assert decoder.inside == (not end)


def test_a_stop_token_ends_what_is_open_and_the_next_reply_starts_anew():
    decoder = tools.Decoder()
    decoder.feed([*model.encode('<tool_call>{"name": "f", "argum'), STOP])
    decoder.feed(model.encode('ents": {}}</tool_call>'))
    event = decoder.feed(model.encode(hermes("g", "{}")))
    assert event == tools.Event.Call(tools.Call("g", "{}"))


@pytest.mark.parametrize(
    "inner",
    [
        "no json", "", "[]", "7", '{"name": 5, "arguments": {}}', '{"name": "", "arguments": {}}',
        '{"arguments": {}}', '{"name": "x", "arguments": [1]}', '{"name": "x", "arguments": {}',
        '{"name": "x", "arguments": {"n": NaN}}', '{"name": "x", "arguments": {"a": "b}}',
        '{"name": "x", "arguments": null}',
    ],
)  # fmt: skip
def test_markup_that_is_no_call_is_skipped_and_the_search_goes_on(inner):
    text = f"<tool_call>{inner}</tool_call>" + hermes("g", '{"a": 1}')
    assert same_for_all_cuts(text) == [("g", '{"a":1}')]


def test_markers_in_strings_are_text():
    value = "Use <tool_call> and </tool_call>."
    text = hermes("echo", json.dumps({"text": value})) + hermes("g", "{}")
    [(_, arguments), (second, _)] = same_for_all_cuts(text)
    assert json.loads(arguments) == {"text": value} and second == "g"


def test_an_opener_that_is_never_closed_hides_no_later_call():
    assert same_for_all_cuts("<tool_call> oops " + hermes("g", "{}")) == [("g", "{}")]


def test_inside_is_true_while_a_marker_is_open():
    decoder, seen = tools.Decoder(), []
    for piece in ("a <tool", "_call>", '{"name": "f"', "}</tool_call", ">", "b"):
        decoder.feed(model.encode(piece))
        seen.append(decoder.inside)
    assert seen == [False, True, True, True, False, False]


def test_keys_keep_their_order_and_nested_arguments_are_not_taken_for_the_calls():
    arguments = '{"z": {"arguments": {"q": 1}}, "a": "é \\u00e9 \\" , : x  y"}'
    text = f'<tool_call>{{"arguments": {arguments}, "name": "f"}}</tool_call>'
    expected = '{"z":{"arguments":{"q":1}},"a":"é \\u00e9 \\" , : x  y"}'
    assert same_for_all_cuts(text) == [("f", expected)]


def test_negative_ids_are_refused():
    with pytest.raises(ValueError, match="negative"):
        tools.Decoder().feed([-1])


def test_a_model_without_a_tool_format_has_no_calls():
    install(byte_vocabulary(""))
    assert tools.equip([ADD]) == [] and tools.format([ADD]) is None
    assert decode([hermes("f", "{}").encode()]) == []
    with pytest.raises(GrammarError, match="no tool format"):
        tools.create_matcher([ADD])


# ---- other markups

GLM = "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
DEEPSEEK_CALLS = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{"b": "}"}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
KIMI_CALLS = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>'
)
DSML_CALLS = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
    '<｜DSML｜parameter name="a" string="true">12</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="b" string="false">{"c": 1}</｜DSML｜parameter>\n'
    '</｜DSML｜invoke>\n<｜DSML｜invoke name="g"/>\n</｜DSML｜function_calls>'
)
XML_CALLS = (
    "text <function=glob>\n<parameter=pattern>\n*.py\n</parameter>\n<parameter=depth>\n2\n"
    "</parameter>\n</function>"
)
XML_TWO = "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>" + XML_CALLS[5:]
XTML_CALLS = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
    '<|open|>argument key="q&amp;a" type="string"<|sep|>12<|close|>argument<|sep|>'
    '<|open|>argument key="n" type="number"<|sep|>12<|close|>argument<|sep|>'
    '<|close|>call<|sep|><|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|>'
)
GEMMA_CALLS = (
    '<|tool_call>call:my-f{a key:<|"|>x<tool_call|>"y<|"|>,n:[1,1e20],o:{p:null}}<tool_call|>'
    "<|tool_call>call:bad no brace<tool_call|><|tool_call>call:g{}<tool_call|>"
)
HARMONY_CALLS = (
    "<|channel|>analysis<|message|>to=functions.x is not it<|end|><|start|>assistant"
    " to=functions.get-x<|channel|>commentary <|constrain|>json<|message|>"
    '{"a": "}"}'
)
MISTRAL_ARRAY = (
    '[TOOL_CALLS][{"name": "f", "arguments": {"a": [1]}}, {"name": "g", "arguments": {}}]'
)
REPLIES = [  # the family, a reply, its calls
    ("xml", XML_CALLS, [("glob", '{"pattern":"*.py","depth":2}')]),  # T12
    ("xml", XML_TWO, [("f", "{}"), ("glob", '{"pattern":"*.py","depth":2}')]),
    ("xml", "<tool_call>no</tool_call><function=f></function>", [("f", "{}")]),
    ("xml", XML_CALLS[:-12], []),
    ("xml", '<function=f>{"a": "</function>"}</function><function=g>[]</function>',
     [("f", '{"a":"</function>"}')]),
    ("xml", "<function=f><parameter=a>['x', {'b': None}]</parameter></function>",
     [("f", '{"a":"[\'x\', {\'b\': None}]"}')]),
    ("xml", "<function=f>\n<parameter=a>x<parameter=b>\ny\n</parameter></function>",
     [("f", '{"a":"x<parameter=b>\\ny"}')]),
    ("phi", '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, 7, {"name": "g"}]<|/tool_call|>',
     [("f", '{"a":1}'), ("g", "{}")]),
    ("glm", GLM + "</tool_call>", [("f", '{"city":"Paris"}')]),
    ("glm", GLM.replace("</arg_value>", "") + "</tool_call>", [("f", '{"city":"Paris"}')]),  # T10
    ("glm", GLM, []),
    ("glm", "<tool_call>f</tool_call><tool_call>g\n</tool_call>", [("f", "{}"), ("g", "{}")]),
    ("mistral", MISTRAL_ARRAY, [("f", '{"a":[1]}'), ("g", "{}")]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]9[ARGS]{}',
     [("f", '{"a":1}'), ("g", "{}")]),
    ("mistral", "[TOOL_CALLS] and prose", []),
    ("deepseek", DEEPSEEK_CALLS, [("f", '{"a":1}'), ("g", '{"b":"}"}')]),
    ("dsml", DSML_CALLS, [("f", '{"a":"12","b":{"c":1}}'), ("g", "{}")]),
    ("xtml", XTML_CALLS, [("f", '{"q&a":"12","n":12}'), ("g", "{}")]),
    ("gemma", GEMMA_CALLS,
     [("my-f", '{"a key":"x<tool_call|>\\"y","n":[1,1e20],"o":{"p":null}}'), ("g", "{}")]),
    ("dsml", DSML_CALLS.replace('"f"', '"f>"'), [("g", "{}")]),
    ("gemma", GEMMA_CALLS[:40], []),
    ("harmony", HARMONY_CALLS, [("get-x", '{"a":"}"}')]),
    ("harmony", HARMONY_CALLS[:-1], []),
    ("kimi", KIMI_CALLS, [("f", '{"a":1}')]),
    ("llama", '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
     [("f", '{"a":1}'), ("g", "{}")]),
    ("llama", '<|python_tag|>{"type": "function", "name": "f", "parameters": {}}', [("f", "{}")]),
    ("llama", '{"a": 1} is a dict', []),  # T14
    ("llama", "{}", []),  # T14
    ("llama", 'use { and {"name": "f", "parameters": {}}', [("f", "{}")]),
    ("llama", '{"x": {"name": "f", "parameters": {}}} is data', []),
    ("pythonic", "[f(a=1, b='x, ]'), g(), h(c=[True, None], d={'e': 1e20})]",
     [("f", '{"a":1,"b":"x, ]"}'), ("g", "{}"), ("h", '{"c":[true,null],"d":{"e":1e20}}')]),
    ("pythonic", "[1, 2] and [see below] and [f(1)]", []),
    ("hermes", "x" + hermes("f", '{"é": "日本"}') + "y", [("f", '{"é":"日本"}')]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text", "expected"), REPLIES)
def test_calls_of_each_family_for_all_cuts(family, text, expected):
    install(VOCABULARIES[family] if family in VOCABULARIES else vocabulary_of(family))
    assert same_for_all_cuts(text) == expected


@settings(deadline=None)
@given(
    reply=st.sampled_from(REPLIES),
    noise=st.lists(st.sampled_from(['{"', "<tool_call>", "</tool_call>", "[", "<", "}\n"])),
    place=st.integers(0, 400),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_any_chunking_of_any_text_gives_the_same_calls(reply, noise, place, cuts):
    family, text, _ = reply
    install(VOCABULARIES[family] if family in VOCABULARIES else vocabulary_of(family))
    data = (text[:place] + "".join(noise) + text[place:]).encode()
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(ends)]
    assert decode(pieces) == decode([data])
    assert decode([data[at : at + 1] for at in range(len(data))]) == decode([data])


def test_t6_declared_types_tell_strings_from_numbers():
    install(VOCABULARIES["xml"])
    text = "<function=f><parameter=a>12</parameter><parameter=b>12</parameter></function>"
    assert same_for_all_cuts(text) == [("f", '{"a":12,"b":12}')]
    properties = {"a": {"type": "string"}, "b": {"type": "integer"}}
    tools.equip([{"name": "f", "parameters": {"properties": properties}}])
    assert same_for_all_cuts(text) == [("f", '{"a":"12","b":12}')]


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("True", {"type": "boolean"}, "true"),
        ("True", {"type": "string"}, '"True"'),
        ("True", {}, '"True"'),
        ("null", {"type": ["string", "null"]}, "null"),
        ("12", {"type": ["string", "null"]}, '"12"'),
        ("1.5", {"type": ["string", "integer"]}, '"1.5"'),
        ("3.0", {"type": ["string", "integer"]}, "3.0"),
        ("12", {"enum": ["12", "13"]}, '"12"'),
        ("12", {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"12"'),
        ("12", {"$ref": "#/$defs/text"}, '"12"'),
        ("1e20", {"type": "number"}, "1e20"),
        ('"q"', {}, '"\\"q\\""'),
        ("[1, 2]", {}, "[1,2]"),
        ("['x', None]", {"type": "array"}, '["x",null]'),
        ("['x', None]", {}, '"[\'x\', None]"'),
        ("{'a': {1}}", {"type": "object"}, '"{\'a\': {1}}"'),
    ],
)
def test_unquoted_values_are_read_by_their_type(text, schema, expected):
    parameters = {"properties": {"a": schema}, "$defs": {"text": {"type": "string"}}}
    types = calls.Types({"f": parameters})
    assert calls.values.typed(text, types.of("f", "a")) == expected
    assert calls.values.typed(text, types.of("g", "a")) == calls.values.typed(text, ())
