"""What each family's template makes of the fillers: its odd rules, spelled out."""

import datetime as clock

import pytest

from inferlet import InferletError, chat, model, reasoning
from inferlet.formats import template
from inferlet.runtime import handles
from inferlet.testing import Client, Hub
from tests.inferlet.template_support import (
    FAMILIES,
    judge,
    judge_of,
    message,
    vicuna,
    vocabulary_of,
)

pytestmark = pytest.mark.timeout(900)  # the first run fetches packages
# They think, or their history keeps less of a last reply than the model said.
UNLIKE_LIVE = {"qwen3", "qwq", "deepseek-r1", "gpt-oss"}


@pytest.fixture
def use():
    def install(family):
        made = vocabulary_of(family)
        handles.install(Hub(Client(), vocabulary=made).runtime)
        return made

    yield install
    handles.install(None)


def spelled(tokens):
    return model.decode(tokens)


def closing(family):
    """What a whole rendering has at its end, and no turn: Llama 3 begins a reply whether it is
    asked to or not, and Phi 3.5 closes a history that asks for none."""
    return {"llama3": chat.cue(), "phi-3.5": model.encode("<|endoftext|>")}.get(family, [])


@pytest.mark.parametrize("family", FAMILIES)
def test_c8_a_sequence_has_one_bos(use, family):
    made = use(family)
    bos = made.token_id(made.named_token("bos_token"))
    openings = [chat.system("s"), chat.system_user("s", "u"), chat.first_user("u")]
    later = [chat.user("u"), chat.assistant("a"), chat.cue(), chat.seal()]
    says_bos = "bos_token" in made.template or str(made.named_token("bos_token")) in made.template
    for tokens in openings:
        assert tokens.count(bos) == (1 if bos is not None and says_bos else 0)
        assert not says_bos or bos is None or tokens[0] == bos
    assert bos is None or bos not in [token for tokens in later for token in tokens]
    assert chat.prefix() in ([[bos]] if bos is not None and says_bos else [[], [bos]])


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - UNLIKE_LIVE))
def test_a_live_reply_is_cue_tokens_and_seal(use, family):
    use(family)
    history = [message("user", "Hi"), message("assistant", "Hello, you!")]
    # What the model says is cut into tokens as what follows the cue.
    start = chat.first_user("Hi") + chat.cue()
    reply = chat.assistant("Hello, you!")[len(chat.cue()) :][: -len(chat.seal())]
    assert spelled(reply).strip() == "Hello, you!"
    expected = judge_of(family)(history)
    live = start + reply + chat.seal()
    assert expected[: len(live)] == live
    assert expected[len(live) :] == closing(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_c4_only_a_cue_begins_a_reply(use, family):
    use(family)
    history = [message("user", "Hi"), message("assistant", "Yes."), message("user", "So?")]
    tokens = chat.first_user("Hi") + chat.assistant("Yes.") + chat.user("So?")
    expected = judge_of(family)(history)
    assert expected[: len(tokens)] == tokens
    assert expected[len(tokens) :] == closing(family)


@pytest.mark.parametrize(
    ("family", "stops"),
    [
        ("qwen3", "<|im_end|> <|endoftext|>"), ("llama3.1", "<|eot_id|> <|end_of_text|>"),
        ("gemma3", "<end_of_turn> <eos>"), ("deepseek-v3", "<｜end▁of▁sentence｜>"),
        ("gpt-oss", "<|return|> <|call|> <|endoftext|>"), ("mistral-nemo", "</s>"),
        ("phi-3.5", "<|end|> <|endoftext|>"), ("phi-4", "<|im_end|> <|endoftext|>"),
    ],
)  # fmt: skip
def test_what_ends_a_reply(use, family, stops):
    made = use(family)
    assert set(chat.stop_tokens()) == {made.token_id(token) for token in stops.split()}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gemma3", "mistral-v1", "mistral-v3",
                                                           "mistral-nemo"}))  # fmt: skip
def test_the_opening_pair_is_two_turns_unless_the_template_merges_them(use, family):
    use(family)
    assert chat.system_user("Be kind.", "Hi") == chat.system("Be kind.") + chat.user("Hi")


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "mistral-nemo"])
def test_without_a_system_role_its_text_is_a_users(use, family):
    use(family)
    assert chat.system("Be kind.") == chat.first_user("Be kind.")


def test_gemma_merges_the_system_text_into_the_first_users_turn(use):
    use("gemma3")
    pair = chat.system_user("Be kind.", "Hi")
    assert spelled(pair) == "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"


def test_a_system_text_that_moves_on_stays_where_it_was_said(use):
    use("mistral-nemo")
    pair = chat.system_user("Be kind.", "Hi")
    assert pair == judge_of("mistral-nemo")([message("system", "Be kind."), message("user", "Hi")])
    assert spelled(chat.user("So?")) == "[INST]So?[/INST]"


def test_mistral_refuses_an_empty_reply_and_says_so(use):
    use("mistral-v7")
    with pytest.raises(InferletError, match="(?s)template fails.*must have a string.*hint"):
        chat.assistant("")


def test_turns_that_meet_in_text_meet_between_its_tokens():
    """Vicuna's markers are ordinary words. The space before one is part of its token."""
    made = vicuna()
    handles.install(Hub(Client(), vocabulary=made).runtime)
    assert spelled(chat.cue()) == " ASSISTANT:"
    history = [message("user", "Hi"), message("assistant", "Hello, you!"), message("user", "So?")]
    tokens = chat.first_user("Hi") + chat.assistant("Hello, you!") + chat.user("So?") + chat.cue()
    assert tokens == made.encode(judge(made)(history, cue=True))
    handles.install(None)


class Tomorrow(clock.datetime):
    """A clock that is ahead."""

    @classmethod
    def now(cls, tz=None):
        return cls(2031, 2, 3)


@pytest.mark.parametrize("family", ["llama3.2", "gpt-oss"])
def test_the_date_is_that_of_the_call_and_later_turns_have_none(use, family, monkeypatch):
    use(family)
    today, turns = chat.first_user("Hi"), (chat.user("x"), chat.assistant("x"), chat.cue())
    monkeypatch.setattr(template.datetime, "datetime", Tomorrow)
    assert (chat.user("x"), chat.assistant("x"), chat.cue()) == turns
    assert "2031" in spelled(chat.first_user("Hi")) and "2031" in spelled(chat.system("s"))
    assert "2031" not in spelled(today)


# ---- thinking


def test_qwen3_thinks_unless_told_not_to(use):
    use("qwen3")
    plain = "<|im_start|>assistant\n"
    assert spelled(chat.cue_thinking(True)) == spelled(chat.cue()) == plain
    assert spelled(chat.cue_without_thinking()) == plain + "<think>\n\n</think>\n\n"
    assert chat.assistant("<think>\nhm\n</think>\n\nYes.") == chat.assistant("Yes.")


def test_deepseek_v31_thinks_when_told_to(use):
    use("deepseek-v3.1")
    assert spelled(chat.cue_thinking(True)) == "<｜Assistant｜><think>"
    assert chat.cue() == chat.cue_thinking(False) == chat.cue_without_thinking()
    assert spelled(chat.cue()) == "<｜Assistant｜><think></think>"


def test_deepseek_r1_drops_old_reasoning_and_always_thinks(use):
    use("deepseek-r1")
    assert chat.assistant("<think>\nhm\n</think>\n\nYes.") == chat.assistant("\n\nYes.")
    assert chat.cue_without_thinking() == chat.cue()


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_gpt_oss_states_an_effort(use, effort):
    use("gpt-oss")
    history = [message("system", "Be kind."), message("user", "Hi")]
    expected = judge_of("gpt-oss")(history, reasoning_effort=effort)
    assert chat.system_thinking("Be kind.", effort) + chat.user("Hi") == expected
    with pytest.raises(ValueError, match="low, medium, high"):
        chat.system_thinking("Be kind.", "extreme")


def test_gpt_oss_keeps_the_final_message_of_a_reply_alone(use):
    use("gpt-oss")
    reply = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    )
    assert chat.assistant(reply) == chat.assistant("Yes.")
    assert chat.assistant(reply + "<|return|>") == chat.assistant("Yes.")
    assert spelled(chat.seal()) == "<|end|>"


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen3", "<think>\nHm.\n</think>\n\nYes."),
        ("deepseek-v3.1", "<think>\nHm.\n</think>Yes."),
        ("ministral", "[THINK]\nHm.\n[/THINK]Yes."),
    ],
)
def test_reasoning_of_a_reply_by_family(use, family, reply):
    use(family)
    decoder = reasoning.Decoder.for_cue([])
    assert [decoder.feed(model.encode(reply))] + [decoder.feed([]) for _ in range(3)] == [
        reasoning.Event.Start(), reasoning.Event.Delta("\nHm.\n"), reasoning.Event.End("\nHm.\n"),
        reasoning.Event.Idle(),
    ]  # fmt: skip


def test_reasoning_of_a_model_whose_cue_opens_the_block(use):
    use("deepseek-r1")
    decoder = reasoning.Decoder()
    events = [decoder.feed([token]) for token in model.encode("Hm.\n</think>\n\nYes.")]
    assert events[-1] == reasoning.Event.Idle()
    ends = [event for event in events if isinstance(event, reasoning.Event.End)]
    assert ends == [reasoning.Event.End("Hm.\n")]
    assert reasoning.Event.Start() not in events


def test_reasoning_of_harmony_is_its_analysis_channel(use):
    use("gpt-oss")
    reply = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "So.<|end|><|start|>assistant<|channel|>analysis<|message|>Ah.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    )
    for size in (1, 2, 5, 100):
        decoder, tokens, found = reasoning.Decoder(), model.encode(reply), []
        parts = [tokens[at : at + size] for at in range(0, len(tokens), size)]
        for part in [*parts, *[[]] * 8]:
            found.append(decoder.feed(part))
        ends = [event.text for event in found if isinstance(event, reasoning.Event.End)]
        assert ends == ["Hm.", "Ah."]


def test_a_control_token_is_not_matched_by_its_spelling_in_other_tokens(use):
    made = use("ministral")
    spelling = [token for piece in ("[TH", "INK", "]", "a") for token in model.encode(piece)]
    assert made.token_id("[THINK]") not in spelling
    assert reasoning.Decoder.for_cue([]).feed(spelling) == reasoning.Event.Idle()
