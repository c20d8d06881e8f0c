"""Tools (contract, 4): specs, turns, and the grammar of calls."""

import json

import pytest

from inferlet import GrammarError, InferletError, Matcher, chat, model, tools
from inferlet.formats.template import Template
from inferlet.runtime import handles
from inferlet.testing import byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.inferlet.call_support import STOP, VOCABULARIES, hermes, install, same_for_all_cuts

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


@pytest.fixture(autouse=True)
def hermes_model():
    install(VOCABULARIES["hermes"])
    yield
    handles.install(None)


# ---- specs


@pytest.mark.parametrize("specs", [None, 5, "{}", PING])
def test_specs_are_a_sequence(specs):
    for call in (tools.equip, tools.format, tools.create_matcher):
        with pytest.raises(TypeError, match="it takes a sequence"):
            call(specs)


@pytest.mark.parametrize(
    "item",
    [
        {"name": "\ud800"},
        {"name": "f", "description": "\ud800"},
    ],
)
def test_a_spec_that_is_no_text_is_an_error_that_names_its_index(item):
    for call in (tools.equip, tools.format, tools.create_matcher):
        with pytest.raises(ValueError, match=r"specs\[0\]"):
            call([item])


@pytest.mark.parametrize("parameters", ["x", [1], 5])
def test_parameters_that_are_no_object_are_not_declared(parameters):
    with pytest.raises(ValueError, match=r"the `parameters` of `specs\[0\]` \('f'\)"):
        tools.equip([{"name": "f", "parameters": parameters}])


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("f", float("nan"), ValueError, "nan at the value"),
        ("f", {"a": [float("inf")]}, ValueError, r"inf at the value\['a'\]"),
        ("f", {1, 2}, TypeError, "set at the value"),
        ("f", "\ud800", ValueError, "the value for `tools.answer` is no Unicode text"),
        ("\ud800", 1, ValueError, "the name for `tools.answer` is no Unicode text"),
    ],
)
def test_an_answer_that_is_no_json_is_an_error_that_says_where(name, value, error, words):
    with pytest.raises(error, match=words):
        tools.answer(name, value)


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


def test_a_template_with_a_markup_of_its_own_declares_tools_and_no_more():
    """Its calls are not known here: no grammar, and nothing for the decoder to find."""
    install(byte_vocabulary(NATIVE.replace("<tool_call>", "<fn>").replace("</tool_call>", "</fn>")))
    assert "<fn>" in model.decode(tools.equip([ADD]))
    assert tools.format([ADD]) is None
    assert same_for_all_cuts(hermes("add", "{}")) == []


IN_USER = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if tools and loop.first SWITCH %}{{- tools | tojson + '\\n<tool_call>\\n' }}{%- endif %}
    {{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def test_a_declaration_within_the_users_turn_is_an_error_that_says_what_to_do():
    install(byte_vocabulary(IN_USER.replace("SWITCH", "")))
    with pytest.raises(InferletError, match="within the user's turn(.|\n)*chat.system"):
        tools.equip([ADD])


def test_a_template_that_fails_for_sparse_specs_gets_complete_ones():
    sparse = NATIVE.replace(
        "tool | tojson", "tool.function.parameters.properties | length | string"
    )
    install(byte_vocabulary(sparse.replace("length", "list | join(',')")))
    assert "a,b" in model.decode(tools.equip([ADD]))
    assert model.decode(tools.equip([{"name": "ping"}])).count("<|im_start|>") == 1


def test_a_silent_template_of_another_family_says_how_to_call():
    """DeepSeek's knows calls and their answers, and declares nothing."""
    template = CHATML + "{# <｜tool▁call▁begin｜> #}"
    install(byte_vocabulary(template))
    text = model.decode(tools.equip([ADD]))
    assert text.startswith("<|im_start|>system\n") and '"name": "add"' in text
    form = "<｜tool▁call▁begin｜><function-name><｜tool▁sep｜><args-json-object><｜tool▁call▁end｜>"
    assert form in text


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


def test_the_grammar_of_tagged_calls_takes_what_the_decoder_reads():
    install(VOCABULARIES["xml"])
    properties = {
        "text": {"type": "string"}, "kind": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/n"}},
    }  # fmt: skip
    parameters = {
        "properties": properties,
        "required": ["kind"],
        "$defs": {"n": {"type": "integer"}},
    }
    matcher = tools.create_matcher([{"name": "f", "parameters": parameters}])

    def call(*arguments):
        tags = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments)
        return f"<tool_call>\n<function=f>\n{tags}</function>\n</tool_call>"

    text = call(("text", "12\n\n é"), ("kind", "a"), ("list", "[1, 2]"))
    assert accepts(matcher, text + "\n" + call(("kind", "b")))
    first = '{"text":"12\\n\\n é","kind":"a","list":[1,2]}'
    assert same_for_all_cuts(text + "\n" + call(("kind", "b"))) == [
        ("f", first),
        ("f", '{"kind":"b"}'),
    ]
    for wrong in (
        call(),
        call(("kind", "c")),
        call(("kind", "a"), ("list", '["x"]')),
        call(("x", "1")),
    ):
        assert not accepts(matcher, wrong)


@pytest.mark.parametrize(
    ("schema", "legal", "forbidden"),
    [
        ({"type": "string", "maxLength": 3}, ["", "abc", "12"], ["abcd"]),
        ({"type": "string", "pattern": "^a"}, ["a<b>", "a\n"], ["b", ""]),
        ({"type": "string", "enum": [1, "x"]}, ["x"], ["1", "y"]),
        ({"enum": ["1", "2"]}, ["1"], ["3", '"1"']),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, ["null", "x"], ["12", '"x"', "{}"]),
        ({"type": "array", "items": {"type": "string"}}, ['["x"]'], ['["</parameter>"]', "x"]),
        ({"type": "string"}, ["</parameter", "<a>"], ["</parameter>", "a\n<parameter=b>\nc"]),
    ],
)
def test_values_of_tagged_calls_are_held_to_their_schema(schema, legal, forbidden):
    install(VOCABULARIES["xml"])
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    matcher = tools.create_matcher([{"name": "f", "parameters": parameters}])
    head, end = (
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    )
    assert [v for v in legal if not accepts(matcher, head + v + end)] == []
    assert [v for v in forbidden if accepts(matcher, head + v + end)] == []


@pytest.mark.parametrize("family", ["xml", "glm", "dsml", "pythonic"])
def test_names_that_a_markup_cannot_write_are_an_error(family):
    install(VOCABULARIES[family])
    parameters = {"properties": {'a"> <b': {}}, "required": ['a"> <b']}
    for spec in ({"name": "f g"}, {"name": "f", "parameters": parameters}):
        with pytest.raises(GrammarError, match="cannot be named in this model's call markup"):
            tools.format([spec])
