"""Tools (contract, 4): turns, the grammar of calls, the decoder; rows T1 to T18 of the cases."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet import GrammarError, Matcher, chat, model, tools
from inferlet.formats import calls
from inferlet.formats.template import Template
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

STOP = 257  # <|im_end|> of the byte vocabulary
ADD = {
    "name": "add",
    "description": "It's a sum.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
PING = {"name": "ping"}
# Qwen's ways: tools are declared in the system turn, answers share a user's turn.
NATIVE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
    {{- '<tool_call>…</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.tool_calls %}
        {{- '<|im_start|>assistant\\n<tool_call>' + message.tool_calls[0].function.name }}
        {{- '</tool_call><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

MARKERS = {
    "hermes": "", "xml": "<function=", "glm": "<arg_key>", "mistral": "[TOOL_CALLS]",
    "deepseek": "<｜tool▁call▁begin｜>", "dsml": "｜DSML｜", "kimi": "<|tool_call_begin|>",
    "llama": "<|python_tag|>", "pythonic": "<|python_start|>",
}  # fmt: skip
VOCABULARIES = {
    name: byte_vocabulary(CHATML + ("{# " + marker + " #}" if marker else ""))
    for name, marker in MARKERS.items()
}


def install(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)


@pytest.fixture(autouse=True)
def hermes_model():
    install(VOCABULARIES["hermes"])
    yield
    handles.install(None)


def decode(pieces):
    """All calls, in order, from pieces of a reply."""
    decoder, found = tools.Decoder(), []
    for piece in [*pieces, *[b""] * 8]:
        event = decoder.feed(list(piece))
        if isinstance(event, tools.Event.Call):
            found.append((event.call.name, event.call.arguments_json))
        else:
            assert event == tools.Event.Start()
    return found


def cut(text, size):
    data = text.encode()
    return [data[at : at + size] for at in range(0, len(data), size)]


def same_for_all_cuts(text):
    """The calls of a reply, after a look at several ways to cut it."""
    found = decode([text.encode()])
    for size in (1, 2, 3, 5):
        assert decode(cut(text, size)) == found
    return found


def hermes(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


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
MISTRAL_ARRAY = (
    '[TOOL_CALLS][{"name": "f", "arguments": {"a": [1]}}, {"name": "g", "arguments": {}}]'
)
REPLIES = [  # the family, a reply, its calls
    ("xml", XML_CALLS, [("glob", '{"pattern":"*.py","depth":2}')]),  # T12
    ("xml", XML_TWO, [("f", "{}"), ("glob", '{"pattern":"*.py","depth":2}')]),
    ("xml", "<tool_call>no</tool_call><function=f></function>", [("f", "{}")]),
    ("xml", XML_CALLS[:-12], []),
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
    ("kimi", KIMI_CALLS, [("f", '{"a":1}')]),
    ("llama", '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
     [("f", '{"a":1}'), ("g", "{}")]),
    ("llama", '<|python_tag|>{"type": "function", "name": "f", "parameters": {}}', [("f", "{}")]),
    ("llama", '{"a": 1} is a dict', []),  # T14
    ("llama", "{}", []),  # T14
    ("llama", 'use { and {"name": "f", "parameters": {}}', [("f", "{}")]),
    ("llama", '{"x": {"name": "f", "parameters": {}}} is data', []),
    ("pythonic", "[f(a=1, b='x, ]'), g(), h(c=[True, None], d={'e': 1e20})]",
     [("f", '{"a":1,"b":"x, ]"}'), ("g", "{}"), ("h", '{"c":[true,null],"d":{"e":1e+20}}')]),
    ("pythonic", "[1, 2] and [see below] and [f(1)]", []),
    ("hermes", "x" + hermes("f", '{"é": "日本"}') + "y", [("f", '{"é":"日本"}')]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text", "expected"), REPLIES)
def test_calls_of_each_family_for_all_cuts(family, text, expected):
    install(VOCABULARIES[family])
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
    install(VOCABULARIES[family])
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
        ("True", None, '"True"'),
        ("null", {"type": ["string", "null"]}, "null"),
        ("12", {"type": ["string", "null"]}, '"12"'),
        ("1e20", {"type": "number"}, "1e20"),
        ('"q"', None, '"\\"q\\""'),
        ("[1, 2]", None, "[1,2]"),
    ],
)
def test_unquoted_values_are_read_by_their_type(text, schema, expected):
    assert calls.values.typed(text, schema) == expected


# ---- specs


@pytest.mark.parametrize(
    "item", ["nope", "[]", "7", "{}", '{"name": ""}', '{"name": 5}', {"function": {}}, {1, 2}, None]
)
def test_a_bad_spec_is_an_error_that_names_its_index(item):
    for call in (tools.equip, tools.format, tools.create_matcher):
        with pytest.raises(ValueError, match=r"specs\[1\]"):
            call([ADD, item])


def test_equal_names_are_an_error():
    with pytest.raises(ValueError, match="second function named 'add'"):
        tools.equip([ADD, json.dumps(ADD)])


def test_one_schema_alone_is_no_sequence_of_them():
    for specs in (json.dumps(ADD), ADD):
        with pytest.raises(TypeError):
            tools.equip(specs)


def test_text_dict_and_wrapped_forms_are_equal():
    wrapped = {"type": "function", "function": ADD}
    tokens = tools.equip([ADD])
    for spec in (json.dumps(ADD), wrapped, json.dumps(wrapped)):
        assert tools.equip([spec]) == tokens


# ---- turns


def test_a_silent_chatml_declares_in_a_system_turn_and_answers_in_a_users():
    text = model.decode(tools.equip([ADD, PING]))
    assert text.startswith("<|im_start|>system\n") and text.endswith("<|im_end|>\n")
    assert text.count("<|im_start|>") == 1
    declared = text.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    functions = [json.loads(line)["function"] for line in declared]
    assert functions == [ADD, PING]  # C6: the quote of `It's` too
    answered = model.decode(tools.answer("add", 5))
    body = "<tool_response>\n5\n</tool_response>"
    assert answered == f"<|im_start|>user\n{body}<|im_end|>\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [("It's", "It's"), ({"a": [1, None]}, '{"a": [1, null]}'), ("é", "é"), (True, "true")],
)
def test_answers_are_text_as_it_is_or_json(value, text):
    assert f"\n{text}\n" in model.decode(tools.answer("f", value))


def test_an_answer_names_a_tool():
    with pytest.raises(TypeError):
        tools.answer(None, 5)


@pytest.mark.parametrize("template", [NATIVE, "{{ bos_token }}" + NATIVE])
def test_native_turns_are_the_templates_rendering(template):
    made = byte_vocabulary(template)
    made.config["bos_token"] = "<|endoftext|>"
    install(made)
    call = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": {}}}
    history = [{"role": "user", "content": "2+3?"}, {"role": "assistant", "tool_calls": [call]}]
    history += [{"role": "tool", "name": "add", "tool_call_id": "call_0", "content": "5"}]
    tool = {"type": "function", "function": ADD}
    whole = made.encode(Template(made).render(history, tools=[tool], cue=True))
    said = model.encode("<tool_call>add</tool_call>")
    bos = [] if template == NATIVE else [258]
    opening = bos + tools.equip([ADD]) + chat.user("2+3?")
    tokens = opening + chat.cue() + said + chat.seal() + tools.answer("add", 5) + chat.cue()
    assert tokens == whole


def test_c4_c8_turns_hold_neither_bos_nor_an_assistants_header():
    made = byte_vocabulary("{{ bos_token }}" + NATIVE)
    made.config["bos_token"] = "<|endoftext|>"
    install(made)
    for tokens in (tools.equip([ADD]), tools.answer("add", 5)):
        assert 258 not in tokens
        assert "assistant" not in model.decode(tokens)


def test_no_specs_are_no_turn_and_no_grammar():
    assert tools.equip([]) == [] and tools.format([]) is None
    with pytest.raises(GrammarError, match="empty"):
        tools.create_matcher([])


# ---- the grammar


def accepts(matcher, text):
    matcher.reset()
    try:
        matcher.accept_tokens([*text.encode(), STOP])
    except GrammarError:
        return False
    return True


def test_the_grammar_is_one_or_more_valid_calls():
    matcher = tools.create_matcher([ADD, PING])
    add, ping = hermes("add", '{"a": 1, "b": -2}'), hermes("ping", "{}")
    for text in (add, ping, f"{add}\n{ping}\n{add}"):
        assert accepts(matcher, text)
        assert same_for_all_cuts(text)
    wrong = (
        "", "hi", hermes("sub", "{}"), hermes("add", "{}"), hermes("add", '{"a": 1, "b": "2"}'),
        hermes("ping", '{"a": 1}'), add[:-1], add + "x", hermes("add", '{"a": 1, "b": 2, "c": 3}'),
    )  # fmt: skip
    for text in wrong:
        assert not accepts(matcher, text), text


def test_equal_specs_share_one_grammar():
    assert tools.format([ADD]) is tools.format([json.dumps(ADD)])
    assert isinstance(tools.create_matcher([ADD]), Matcher)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        ["no", "object"],
    ],
)
def test_parameters_that_no_object_satisfies_are_an_error(parameters):
    with pytest.raises(GrammarError):
        tools.format([PING, {"name": "f", "parameters": parameters}])


def test_local_references_of_parameters_hold():
    parameters = {
        "properties": {"p": {"$ref": "#/$defs/n"}}, "required": ["p"],
        "$defs": {"n": {"enum": [1, 2]}},
    }  # fmt: skip
    matcher = tools.create_matcher([{"name": "f", "parameters": parameters}])
    assert accepts(matcher, hermes("f", '{"p": 2}')) and not accepts(
        matcher, hermes("f", '{"p": 3}')
    )
