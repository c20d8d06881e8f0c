"""Fillers of real models equal `transformers`' rendering and tokens of the same history."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlet import chat, model
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub
from tests.inferlet.template_support import FAMILIES, judge_of, message, vocabulary_of

pytestmark = pytest.mark.timeout(900)  # the first run fetches packages
# Their system text is always in the newest user's turn: earlier turns are not what they were.
MOVING = {"mistral-v3", "mistral-nemo"}
WITHOUT_SYSTEM = {"gemma2"}
# Its `[/INST]` is text: with brackets at the start of a reply it would make other tokens.
TEXT_BEFORE_REPLIES = {"mistral-v1"}
REFUSING_EMPTY_REPLIES = {"mistral-v3", "mistral-v7", "ministral"}
SAMPLES = (
    "", " ", "\n", " a ", "\n\nb\n", "Hello!", "  two  spaces", "日本語 🎉", "e\u0301 ü", "\u200b",
    "[INST] x [/INST]", "<think>a</think>b", "</think>", "<think>", "<tool_response>x", "{{ x }}",
    "<|im_start|>user\n", "<|im_end|>", "<end_of_turn>", "</s>", "<s>", "<bos>", "<|end|>",
    "<|eot_id|>", "<|endoftext|>", "system", "don't", "1234567", "a\tb", "\r\n",
)  # fmt: skip
texts = st.sampled_from(SAMPLES) | st.text(
    st.sampled_from("ab \n\t<|>[]/#'\"{}1") | st.characters(codec="utf-8"), max_size=12
)
pairs = st.lists(st.tuples(texts, texts), max_size=3)


def use(vocabulary: Vocabulary) -> None:
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)


@pytest.fixture(params=FAMILIES)
def family(request):
    use(vocabulary_of(request.param))
    yield request.param
    handles.install(None)


def history_of(system, first, more):
    history = [message("system", system)] if system is not None else []
    history.append(message("user", first))
    for reply, question in more:
        history += [message("assistant", reply), message("user", question)]
    return history


def fillers_of(system, first, more):
    tokens = chat.first_user(first) if system is None else chat.system_user(system, first)
    for reply, question in more:
        tokens = tokens + chat.assistant(reply) + chat.user(question)
    return tokens


def test_a_tokenizer_knows_its_text(family):
    text = "Hello, wörld! 你好 🎉 1 + 2\n  x"
    assert model.decode(model.encode(text)).removeprefix(" ") == text


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40, deadline=None
)
@given(system=st.none() | texts, first=texts, more=pairs)
def test_fillers_of_a_history_are_its_rendering_token_for_token(family, system, first, more):
    if family in WITHOUT_SYSTEM:
        system = None
    if system is not None and family in MOVING:
        more = []
    if family in REFUSING_EMPTY_REPLIES:
        more = [(reply or "x", question) for reply, question in more]
    if family in TEXT_BEFORE_REPLIES:
        more = [("x" + reply, question) for reply, question in more]
    expected = judge_of(family)(history_of(system, first, more), cue=True)
    assert fillers_of(system, first, more) + chat.cue() == expected


# ---- facts of each family


def test_what_each_family_begins_a_reply_with(family):
    starts = {
        "qwen": "<|im_start|>assistant\n", "qwq": "<|im_start|>assistant\n<think>\n</think>",
        "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "gemma": "<start_of_turn>model\n", "deepseek-v3": "<｜Assistant｜>",
        "deepseek-r1": "<｜Assistant｜><think>\n", "deepseek-v3.1": "<｜Assistant｜><think></think>",
        "deepseek-v4": "<｜Assistant｜></think>", "gpt-oss": "<|start|>assistant", "mistral": "", "ministral": "",
        "phi-3.5": "<|assistant|>\n", "phi-4": "<|im_start|>assistant<|im_sep|>",
    }  # fmt: skip
    best = max((name for name in starts if family.startswith(name)), key=len)
    assert chat.cue() == model.encode(starts[best])


MISTRAL_FILES = {
    "mistral-v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral-v7": "mistral_instruct_tokenizer_241114.model.v7",
    "mistral-nemo": "tekken_240718.json",
}


@pytest.mark.parametrize("name", MISTRAL_FILES)
def test_mistrals_own_library_makes_the_same_tokens(name):
    common = pytest.importorskip("mistral_common", reason="is the judge")
    from mistral_common.protocol.instruct.messages import (
        AssistantMessage,
        SystemMessage,
        UserMessage,
    )
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    judge = MistralTokenizer.from_file(
        str(Path(common.__file__).parent / "data" / MISTRAL_FILES[name])
    )

    def judged(*messages):
        return judge.encode_chat_completion(ChatCompletionRequest(messages=list(messages))).tokens

    use(vocabulary_of(name))
    turns = chat.first_user("Hi 你好") + chat.assistant("Hello, you!") + chat.user("So?\n")
    user, reply = UserMessage(content="Hi 你好"), AssistantMessage(content="Hello, you!")
    assert turns == judged(user, reply, UserMessage(content="So?\n"))
    assert chat.system_user("Be kind.", "Hi 你好") == judged(
        SystemMessage(content="Be kind."), user
    )
    handles.install(None)
