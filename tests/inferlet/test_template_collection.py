"""Every template of a collection of some 70 models is cut exactly, or refused with a reason."""

import random

import pytest
from jinja2.exceptions import TemplateError

from inferlet import InferletError, chat, model, reasoning
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary
from tests.inferlet.template_support import judge, message
from tests.packages import files_of

pytestmark = pytest.mark.timeout(900)  # the first run fetches the package
# They cannot be rendered without tools, by `transformers` neither.
REFUSED = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "not iterable",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "not iterable",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "not iterable",
    "fireworks-ai-llama-3-firefunction-v2": "undefined",
}
# The system text moves to the newest user's turn, or has no place at all.
WITHOUT_SYSTEM = {"mistralai-Mistral-Nemo-Instruct-2407", "google-gemma-2-2b-it"}
TEXTS = (
    "", " ", " a ", "\n\nb\n", "Hello!", "日本語", "<think>a</think>b", "</think>", "<think>", "x\u3000",
    "<", "/think", "a</think>\n\n b <|im_end|>", "it's \"x\" {y}", "\t", "1 2  3",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_engine():
    yield
    handles.install(None)


def install(name):
    made = byte_vocabulary((files_of("templates") / f"{name}.jinja").read_text("utf-8"))
    made.config |= {"bos_token": "<BOS>", "eos_token": "<EOS>"}
    handles.install(Hub(Client(), vocabulary=made).runtime)
    return made


def random_history(name, number):
    pick = random.Random(f"{name} {number}")
    history = [message("user", pick.choice(TEXTS))]
    if number % 2 and name not in WITHOUT_SYSTEM:
        history.insert(0, message("system", pick.choice(TEXTS)))
    for _ in range(pick.randrange(3)):
        history += [message("assistant", pick.choice(TEXTS)), message("user", pick.choice(TEXTS))]
    return history


def fillers_of(history):
    texts = [entry["content"] for entry in history]
    if history[0]["role"] == "system":
        tokens, rest = chat.system_user(*texts[:2]), texts[2:]
    else:
        tokens, rest = chat.first_user(texts[0]), texts[1:]
    for index, text in enumerate(rest):
        tokens = tokens + (chat.user(text) if index % 2 else chat.assistant(text))
    return tokens + chat.cue()


def test_every_template_is_cut_exactly():
    names = sorted(path.stem for path in files_of("templates").glob("*.jinja"))
    assert len(names) > 60
    for name in set(names) - set(REFUSED):
        made = install(name)
        render = judge(made)
        for number in range(24):
            history = random_history(name, number)
            try:
                expected = made.encode(render(history, cue=True))
            except TemplateError:
                with pytest.raises(InferletError, match="template fails"):
                    fillers_of(history)
                continue
            assert fillers_of(history) == expected, (name, history)


def test_refused_templates_say_why():
    for name, reason in REFUSED.items():
        install(name)
        with pytest.raises(InferletError, match=f"(?s){reason}.*hint"):
            chat.cue()


THINKERS = {
    "google-gemma-4-31B-it": "<|channel>thought\nHm.<channel|>Yes.",
    "MiniMax-M3": "<mm:think>Hm.</mm:think>Yes.",
    "upstage-Solar-Open-100B": "<|think|>Hm.<|end|>Yes.",
    "Cohere2MoE": "<|START_THINKING|>Hm.<|END_THINKING|>Yes.",
    "GLM-4.6": "<think>Hm.</think>Yes.",
}


@pytest.mark.parametrize("name", THINKERS)
def test_reasoning_of_models_that_have_other_markers(name):
    made = install(name)
    decoder = reasoning.Decoder.for_cue([])
    events = [decoder.feed(made.encode(THINKERS[name])), decoder.feed([]), decoder.feed([])]
    starts = [reasoning.Event.Start(), reasoning.Event.Delta("Hm."), reasoning.Event.End("Hm.")]
    assert events == starts


def test_c2_half_a_think_block_is_a_turn_or_a_clear_error():
    names = sorted(path.stem for path in files_of("templates").glob("*.jinja"))
    for name in set(names) - set(REFUSED):
        install(name)
        for text in (
            "<think>\nhalf",
            "</think>",
            "<think>",
            "<think></think>",
            "a</think>b</think>",
        ):
            try:
                turn = chat.assistant(text)
            except InferletError as error:
                assert "template fails" in str(error) and "hint" in str(error)
                continue
            assert turn[len(turn) - len(chat.seal()) :] == chat.seal()


# What a reply begins with by default, when it is to think, and when it is not.
TOGGLES = {
    "Qwen3.5-4B": ("<think>\n", "<think>\n", "<think>\n\n</think>\n\n"),
    "HuggingFaceTB-SmolLM3-3B": ("", "", "<think>\n\n</think>\n"),
    "GLM-4.7-Flash": ("<think>", "<think>", "</think>"),
    "deepseek-ai-DeepSeek-V4": ("</think>", "<think>", "</think>"),
    "google-gemma-4-31B-it": ("<|channel>thought\n<channel|>", "", "<|channel>thought\n<channel|>"),
    "MiniMax-M3": ("", "<mm:think>", "</mm:think>"),
    "tencent-Hy3": ("<think:opensource></think:opensource>", "<think:opensource>",
                    "<think:opensource></think:opensource>"),
    "Cohere2MoE": ("<|START_THINKING|>", "<|START_THINKING|>",
                   "<|START_THINKING|><|END_THINKING|>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGGLES)
def test_thinking_is_switched_as_the_template_has_it(name):
    install(name)
    default, on, off = TOGGLES[name]
    cue = model.decode(chat.cue())
    header = cue.removesuffix(default)
    assert cue == header + default
    assert model.decode(chat.cue_thinking(True)) == header + on
    assert model.decode(chat.cue_without_thinking()) == header + off
    assert chat.cue_thinking(False) == chat.cue_without_thinking()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("openai-gpt-oss-120b", "low, medium, high", "Reasoning: high"),
        ("Kimi-K3", "low, high, max", "high"),
        ("deepseek-ai-DeepSeek-V4-Flash-0731", "low, medium, high, max", ""),
        ("tencent-Hy3", "low, high, no_think", "reasoning_effort:high"),
        ("meta-llama-Llama-3.1-8B-Instruct", "low, medium, high", None),
    ],
)
def test_an_effort_is_stated_in_the_models_own_words(name, words, said):
    install(name)
    stated, plain = (model.decode(t) for t in (chat.system_thinking("s", "high"), chat.system("s")))
    assert (stated == plain) if said is None else (said in stated and stated != plain)
    with pytest.raises(ValueError, match=f"this model accepts {words}$"):
        chat.system_thinking("s", "extreme")


def test_what_ends_a_reply_ends_no_reasoning():
    """Kimi K3 closes its reasoning, its answer and its message with the same token."""
    source = (files_of("templates") / "Kimi-K3.jinja").read_text("utf-8")
    made = byte_vocabulary(source)
    made.tokenizer.add_special_tokens(["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"])
    made = Vocabulary(made.tokenizer, made.config, source)
    handles.install(Hub(Client(), vocabulary=made).runtime)
    stops = {made.added[token] for token in chat.stop_tokens()}
    assert "<|end_of_msg|>" in stops and "<|close|>" not in stops
    reply = made.encode("Hm.<|close|>think<|sep|>Yes.")
    decoder = reasoning.Decoder()
    assert decoder.feed(reply) == reasoning.Event.Delta("Hm.")
    assert decoder.feed([]) == reasoning.Event.End("Hm.")
