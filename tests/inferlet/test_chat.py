"""Fillers equal the template's rendering; the decoder cuts text where characters end (contract, 3)."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlet import InferletError, chat, model
from inferlet.chat import Event
from inferlet.formats.template import Template
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    + CHATML
)
# Qwen 3's ways: reasoning is dropped from old replies, text is trimmed, thinking has a toggle.
THINKING = """\
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == 'assistant' and not loop.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
WITH_BOS = "{{ bos_token }}" + CHATML
TEMPLATES = {"plain": CHATML, "default": DEFAULT_SYSTEM, "thinking": THINKING, "bos": WITH_BOS}

texts = st.text(
    st.one_of(st.sampled_from("ab \n\t<|>"), st.characters(codec="utf-8")), max_size=12
) | st.sampled_from(["", "<|im_end|>", "<think>x</think>y", " a ", "\n\nb", "</think>"])
turns = st.lists(st.tuples(texts, texts), max_size=3)


def vocabulary_of(name):
    made = byte_vocabulary(TEMPLATES[name])
    made.config["bos_token"] = "<|endoftext|>"
    return made


@pytest.fixture(params=["smollm", *TEMPLATES])
def vocabulary(request):
    if request.param != "smollm":
        made = vocabulary_of(request.param)
    else:
        made = Vocabulary.load(request.getfixturevalue("model_path"))
    handles.install(Hub(Client(), vocabulary=made).runtime)
    yield made
    handles.install(None)


@pytest.fixture
def use():
    def install(made):
        handles.install(Hub(Client(), vocabulary=made).runtime)
        return made

    yield install
    handles.install(None)


def rendered(vocabulary, messages, **options):
    return vocabulary.encode(Template(vocabulary).render(messages, **options))


def message(role, text):
    return {"role": role, "content": text}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40, deadline=None
)
@given(system=st.none() | texts, first=texts, more=turns)
def test_fillers_of_a_history_are_the_templates_rendering(vocabulary, system, first, more):
    history = [message("user", first)]
    tokens = chat.first_user(first)
    if system is not None:
        history.insert(0, message("system", system))
        tokens = chat.system_user(system, first)
        assert tokens == chat.system(system) + chat.user(first)
    for reply, question in more:
        history += [message("assistant", reply), message("user", question)]
        tokens = tokens + chat.assistant(reply) + chat.user(question)
    assert tokens == rendered(vocabulary, history)
    assert tokens + chat.cue() == rendered(vocabulary, history, cue=True)


def test_a_live_reply_is_cue_tokens_and_seal(vocabulary):
    history = [message("user", "hi"), message("assistant", "Hello!")]
    live = chat.first_user("hi") + chat.cue() + model.encode("Hello!") + chat.seal()
    assert live == rendered(vocabulary, history)


def test_smollm_has_its_default_system_turn_before_a_first_user_alone(use, model_path):
    use(Vocabulary.load(model_path))
    assert "SmolLM" in model.decode(chat.first_user("hi"))
    assert "SmolLM" not in model.decode(chat.user("hi") + chat.system("x"))
    assert model.decode(chat.cue()) == "<|im_start|>assistant\n"
    assert set(chat.stop_tokens()) == {0, 2}
    assert chat.prefix() == []


def test_cues_for_thinking(use):
    use(vocabulary_of("thinking"))
    cue = chat.cue()
    assert chat.cue_thinking(True) == cue
    assert chat.cue_without_thinking() == cue + model.encode("<think>\n\n</think>\n\n")
    assert chat.cue_thinking(False) == chat.cue_without_thinking()


@pytest.mark.parametrize("name", ["plain", "default", "bos"])
def test_cues_without_the_feature_are_the_cue(use, name):
    use(vocabulary_of(name))
    cues = (chat.cue_without_thinking(), chat.cue_thinking(True), chat.cue_thinking(False))
    assert cues == (chat.cue(),) * 3


def test_old_reasoning_is_dropped_where_the_template_drops_it(use):
    use(vocabulary_of("thinking"))
    assert chat.assistant("<think>a</think>\n\nb") == chat.assistant("b")
    use(vocabulary_of("plain"))
    assert "<think>a</think>" in model.decode(chat.assistant("<think>a</think>b"))


def test_an_effort_without_a_slot_is_a_plain_system_turn(use):
    use(vocabulary_of("plain"))
    for effort in ("low", "medium", "high"):
        assert chat.system_thinking("s", effort) == chat.system("s")
    with pytest.raises(ValueError, match="low, medium, high"):
        chat.system_thinking("s", "extreme")


def test_prefix_is_the_bos_of_models_that_start_with_one(use):
    made = vocabulary_of("plain")
    use(made)
    assert chat.prefix() == []
    made.config["add_bos_token"] = True
    assert chat.prefix() == [258]


def test_bos_is_in_the_opening_turn_alone(use):
    use(vocabulary_of("bos"))
    for tokens in (chat.system("x"), chat.first_user("x"), chat.system_user("x", "y")):
        assert tokens[0] == 258 and tokens.count(258) == 1
    assert 258 not in chat.user("x") + chat.assistant("y") + chat.cue() + chat.seal()


def test_a_template_that_cannot_be_cut_is_an_error_that_helps(use):
    use(byte_vocabulary("{{ messages[0].content }}"))
    with pytest.raises(InferletError, match="(?s)no fixed turns.*hint: write.*`chat.prefix"):
        chat.user("x")
    use(byte_vocabulary("{{ messages | length }}" + CHATML))
    with pytest.raises(InferletError, match="no fixed turns"):
        chat.user("x")
    use(byte_vocabulary("{% if %}"))
    with pytest.raises(InferletError, match="no valid Jinja"):
        chat.user("x")
    use(byte_vocabulary(""))
    with pytest.raises(InferletError, match="no chat template"):
        chat.cue()
    assert chat.prefix() == []


@pytest.mark.parametrize("template", ["", "{{ messages | length }}", "{% if %}"])
def test_a_model_without_turns_has_stop_tokens_and_a_decoder(use, template):
    use(byte_vocabulary(template))
    assert set(chat.stop_tokens()) == {257, 258}
    assert chat.Decoder().feed([*b"ab", 258]) == Event.Done("ab")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("chat_template.jinja", CHATML),
        ("tokenizer_config.json", json.dumps({"chat_template": CHATML})),
        ("chat_template.json", json.dumps({"chat_template": CHATML})),
        (
            "tokenizer_config.json",
            json.dumps({"chat_template": [{"name": "default", "template": CHATML}]}),
        ),
    ],
)
def test_a_template_is_found_where_models_keep_it(use, tmp_path, file, content):
    byte_vocabulary().tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_text(content)
    use(Vocabulary.load(tmp_path))
    assert model.decode(chat.user("x")) == "<|im_start|>user\nx<|im_end|>\n"


def test_half_a_character_in_a_text_is_named(use):
    use(vocabulary_of("plain"))
    for call in (chat.user, chat.assistant, model.encode):
        with pytest.raises(ValueError, match="(?s)character 2 of.*half of one.*hint: replace it"):
            call("ab\ud800")


def test_fillers_take_str(use):
    use(vocabulary_of("plain"))
    for call in (chat.user, chat.system, chat.first_user, chat.assistant):
        with pytest.raises(TypeError, match="it takes a str"):
            call(5)
    with pytest.raises(TypeError):
        chat.system_user("s", None)


# ---- decoder


@pytest.fixture
def decoder(use):
    use(vocabulary_of("plain"))
    return chat.Decoder()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(text=texts.filter(lambda t: "<|" not in t), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_pieces_make_up_the_text_however_the_tokens_are_fed(decoder, text, cuts):
    decoder.reset()
    tokens = [*model.encode(text), 257]
    pieces, ends = [], [0, *sorted(min(cut, len(tokens)) for cut in cuts), len(tokens)]
    for start, end in itertools.pairwise(ends):
        match decoder.feed(tokens[start:end]):
            case Event.Delta(piece):
                pieces.append(piece)
                assert "\ufffd" not in piece or "\ufffd" in text
            case Event.Done(whole):
                assert whole == text and text.startswith("".join(pieces))
                return
            case Event.Idle():
                pass
    raise AssertionError("no Done")


def test_bytes_of_an_unfinished_character_are_held_back(decoder):
    events = [decoder.feed([byte]) for byte in "aö".encode()]
    assert events == [Event.Delta("a"), Event.Idle(), Event.Delta("ö")]
    assert decoder.feed([]) == Event.Idle()


def test_a_character_that_never_ends_is_replaced_at_done(decoder):
    assert decoder.feed([0xC3]) == Event.Idle()
    assert decoder.feed([257]) == Event.Done("\ufffd")


def test_the_first_stop_gives_the_whole_text_and_the_rest_is_ignored(decoder):
    decoder.feed(model.encode("ab"))
    assert decoder.feed([*model.encode("cd"), 257, 257, *model.encode("ef")]) == Event.Done("abcd")
    assert decoder.feed(model.encode("x")) == Event.Idle()
    decoder.reset()
    assert decoder.feed(model.encode("x")) == Event.Delta("x")
    assert decoder.feed([258]) == Event.Done("x")


def test_a_control_token_interrupts_and_the_rest_waits_for_the_next_feed(decoder):
    start = 256  # <|im_start|>: no stop token, no text
    assert decoder.feed([*b"ab", start, *b"cd"]) == Event.Delta("ab")
    assert decoder.feed([*b"ef"]) == Event.Interrupt(start)
    assert decoder.feed([]) == Event.Delta("cdef")
    assert decoder.feed([start, start, 257]) == Event.Interrupt(start)
    assert decoder.feed([]) == Event.Interrupt(start)
    assert decoder.feed([]) == Event.Done("abcdef")


def test_a_padding_column_has_no_text(decoder):
    assert decoder.feed([300]) == Event.Interrupt(300)


def test_feed_takes_arrays_and_refuses_negative_ids(decoder):
    assert decoder.feed(np.array([104, 105])) == Event.Delta("hi")
    with pytest.raises(ValueError, match="negative"):
        decoder.feed([104, -1])
    assert decoder.feed([]) == Event.Idle()
    with pytest.raises(TypeError):
        decoder.feed("hi")


def test_events_are_equal_by_class_and_fields():
    assert Event.Delta("a") == Event.Delta("a") != Event.Delta("b")
    assert Event.Delta("a") != Event.Done("a") and Event.Idle() == Event.Idle()
