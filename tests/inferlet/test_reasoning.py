"""Reasoning (contract, 5): rows R1 to R6 of the cases, and the rules of events."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet import chat, model, reasoning, tools
from inferlet.reasoning import Event
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.inferlet.test_chat import THINKING

STOP, START = 257, 256
PLAIN, THINKER = byte_vocabulary(CHATML), byte_vocabulary(THINKING)
OPENED = byte_vocabulary(THINKING.replace("assistant\\n' }}", "assistant\\n<think>\\n' }}"))


def install(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)


@pytest.fixture(autouse=True)
def thinking_model():
    install(THINKER)
    yield
    handles.install(None)


def events(decoder, *pieces):
    """The events of pieces, and of feeds of nothing until all is told."""
    found = [decoder.feed(list(p) if isinstance(p, bytes) else model.encode(p)) for p in pieces]
    while (event := decoder.feed([])) != Event.Idle():
        found.append(event)
    return found


def inside():
    return reasoning.Decoder.for_cue(model.encode("<|im_start|>assistant\n<think>\n"))


def test_r1_a_split_marker_leaks_no_text_and_switches():
    found = events(inside(), "ab</th", "ink>answer")
    assert found == [Event.Delta("ab"), Event.End("ab")]


@pytest.mark.parametrize("cut", range(1, len("</think>")))
def test_r1_wherever_the_marker_is_split(cut):
    marker = "</think>"
    decoder = inside()
    assert decoder.feed(model.encode("x" + marker[:cut])) == Event.Delta("x")
    assert decoder.feed(model.encode(marker[cut:])) == Event.End("x")


def test_what_only_began_like_a_marker_is_text():
    found = events(inside(), "a</thi", "s</", "</think>")
    text = "".join(e.text for e in found if isinstance(e, Event.Delta))
    assert text == "a</this</" and found[-1] == Event.End(text)


def test_r2_what_only_begins_like_a_marker_is_content_at_once():
    decoder = reasoning.Decoder()
    assert events(decoder, "<", "Direct answer", " without <thin", "g>") == [Event.Idle()] * 4
    reply = chat.Decoder()
    assert reply.feed(model.encode("<Direct")) == chat.Event.Delta("<Direct")


def test_r5_a_cue_that_opened_the_block_makes_the_start_reasoning():
    install(OPENED)
    for decoder in (reasoning.Decoder(), reasoning.Decoder.for_cue(chat.cue())):
        found = events(decoder, "weighing it</think>Answer.")
        assert found == [Event.Delta("weighing it"), Event.End("weighing it")]


def test_r6_without_thinking_all_is_content():
    decoder, reply = reasoning.Decoder.for_cue(chat.cue_without_thinking()), chat.Decoder()
    tokens = model.encode('{"a": 1}')
    assert decoder.feed(tokens) == Event.Idle()
    assert reply.feed([*tokens, STOP]) == chat.Event.Done('{"a": 1}')


def test_a_block_gives_start_deltas_and_end():
    found = events(reasoning.Decoder(), "<think>", "one ", "two", "</think>", "answer")
    deltas = [Event.Delta("one "), Event.Delta("two")]
    assert found == [Event.Start(), *deltas, Event.End("one two"), Event.Idle()]


def test_a_batch_of_several_events_gives_them_one_a_feed():
    found = events(reasoning.Decoder(), "a<think>b</think>c<think></think>")
    one = [Event.Start(), Event.Delta("b"), Event.End("b")]
    assert found == [*one, Event.Start(), Event.End("")]


def test_kept_text_comes_before_that_of_the_next_feed():
    decoder = reasoning.Decoder()
    assert decoder.feed(model.encode("<think>ab")) == Event.Start()
    assert decoder.feed(model.encode("cd</think>")) == Event.Delta("abcd")
    assert decoder.feed(model.encode("ignored")) == Event.End("abcd")
    assert decoder.feed([]) == Event.Idle()


@pytest.mark.parametrize(
    ("cue", "is_inside"),
    [
        ("", False), ("<think>", True), ("<think>\n\n</think>\n\n", False), ("</think>", False),
        ("<think></think><think>\n", True), ("<think></thin", True), ("<thin", False),
    ],
)  # fmt: skip
def test_the_last_complete_marker_of_the_cue_decides(cue, is_inside):
    decoder = reasoning.Decoder.for_cue(model.encode(cue))
    expected = Event.Delta("x") if is_inside else Event.Idle()
    assert decoder.feed(model.encode("x")) == expected


def test_reset_is_the_constructed_state():
    decoder = inside()
    events(decoder, "a</think>b<thi")
    decoder.reset()
    assert events(decoder, "c</think>") == [Event.Delta("c"), Event.End("c")]
    decoder = reasoning.Decoder()
    events(decoder, "<think>a</th")
    decoder.reset()
    assert decoder.feed(model.encode("ink>x")) == Event.Idle()


def test_a_model_without_markers_is_always_idle():
    install(PLAIN)
    for decoder in (reasoning.Decoder(), reasoning.Decoder.for_cue(model.encode("<think>"))):
        assert events(decoder, "<think>a</think>", "b") == [Event.Idle()] * 2


def test_a_model_without_a_template_is_idle_too():
    install(byte_vocabulary(""))
    assert reasoning.Decoder().feed(model.encode("<think>")) == Event.Idle()


def test_u6_control_tokens_have_no_text_in_reasoning():
    decoder = inside()
    assert decoder.feed([*b"ab</th", START, *b"ink>", STOP]) == Event.Delta("ab</think>")
    assert events(decoder, "</think>")[-1] == Event.End("ab</think>")
    decoder.reset()
    assert decoder.feed([STOP, *b"</think>"]) == Event.End("")


def test_u3_bytes_of_an_unfinished_character_wait_or_are_replaced():
    decoder = inside()
    assert decoder.feed(list("é".encode()[:1])) == Event.Idle()
    assert decoder.feed(list("é".encode()[1:])) == Event.Delta("é")
    assert decoder.feed([0xC3]) == Event.Idle()
    assert decoder.feed(list(b" x")) == Event.Delta("\ufffd x")


def test_markers_that_are_tokens_are_found_without_the_template():
    made = byte_vocabulary(CHATML)
    made.tokenizer.add_special_tokens(["[THINK]", "[/THINK]"])
    made = type(made)(made.tokenizer, made.config, CHATML)
    install(made)
    found = events(reasoning.Decoder(), "[THINK]a[/THINK]b")
    assert found == [Event.Start(), Event.Delta("a"), Event.End("a")]


@pytest.mark.parametrize(
    ("opener", "closer"),
    [
        ("[THINK]", "[/THINK]"), ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|channel>thought\n", "<channel|>"), ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ],
)  # fmt: skip
def test_markers_of_other_families_are_found_in_their_templates(opener, closer):
    install(byte_vocabulary(CHATML + "{# " + opener + closer + " #}"))
    found = events(reasoning.Decoder(), opener, "a", closer, "b")
    assert found == [Event.Start(), Event.Delta("a"), Event.End("a"), Event.Idle()]


def test_negative_ids_are_refused():
    with pytest.raises(ValueError, match="negative"):
        reasoning.Decoder().feed([-1])


def test_the_decoders_are_independent():
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tokens = [*model.encode("<think>a</think>" + call), STOP]
    assert tools.Decoder().feed(tokens) == tools.Event.Call(tools.Call("f", "{}"))
    assert reasoning.Decoder().feed(tokens) == Event.Start()
    assert chat.Decoder().feed(tokens) == chat.Event.Done("<think>a</think>" + call)


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "nk>", "é", "日", "a", "<", " "]),
    max_size=12,
)


@settings(deadline=None)
@given(pieces=PIECES, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_any_chunking_gives_the_same_blocks(pieces, cuts):
    install(THINKER)
    data = "".join(pieces).encode()
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in itertools.pairwise(ends)]

    def blocks(chunks):
        found = events(reasoning.Decoder(), *chunks)
        text = "".join(e.text for e in found if isinstance(e, Event.Delta))
        return [e for e in found if isinstance(e, Event.Start | Event.End)], text

    assert blocks(parts) == blocks([data]) == blocks([bytes([byte]) for byte in data])
