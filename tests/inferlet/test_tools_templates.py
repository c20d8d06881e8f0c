"""Turns of tools (contract, 4) equal `transformers`' rendering of the same history, for real
tokenizers and templates."""

import contextlib
import copy
import itertools
import json
import re
from functools import cache

import pytest
from jinja2.exceptions import TemplateError

from inferlet import GrammarError, chat, model, tools
from inferlet.formats import calls
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary
from tests.inferlet.template_support import FAMILIES, judge, judge_of, vocabulary_of
from tests.packages import files_of

pytestmark = pytest.mark.timeout(900)  # the first run fetches packages
ADD = {
    "name": "add",
    "description": "It's a sum.",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "first"},
            "b": {"type": "array", "items": {"type": "string"}, "description": "others"},
        },
        "required": ["a"],
    },
}
FIND = {
    "name": "find",
    "description": "Looks <b>up</b> é.",
    "parameters": {
        "type": "object",
        "properties": {"q": {"type": "string", "enum": ["x", "y"], "description": "what"}},
        "required": ["q"],
    },
}
DECLARED = [{"type": "function", "function": spec} for spec in (ADD, FIND)]
USER = {"role": "user", "content": "Hi <there>?"}
# These declare tools in the first user's turn unless they are told not to.
IN_SYSTEM = {
    name: {"tools_in_user_message": False}
    for name in (
        "llama3.1", "llama3.2", "llama3.3", "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct",
    )
}  # fmt: skip
SPECIAL = re.compile(
    r"<\|[^|<>\s'\"{}]+\|>|<｜[^｜<>\s]+｜>|｜DSML｜|<\|[a-z_]+>|<[a-z_]+\|>|\[/?[A-Z_]+\]|</?s>"
    r"|<seed:[a-z]+>|\]~b\]|\[e~\[|\]~!b\[|<\|\"\|>"
)
# Templates of the collection that declare tools, in a markup that is known here.
COLLECTED = (
    "ByteDance-Seed-OSS", "GLM-4.6", "GLM-4.7-Flash", "Kimi-K3", "MiMo-VL",
    "Mistral-Small-3.2-24B-Instruct-2506", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "Qwen-QwQ-32B", "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B",
    "Reka-Edge", "Spark2.5", "StepFun3.5-Flash", "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4", "google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved",
    "ibm-granite-granite-3.3-2B-Instruct", "ibm-granite-granite-4.0", "ibm-granite-granite-4.1",
    "inclusionai-ling-3.0-flash", "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512", "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2", "openai-gpt-oss-120b", "openbmb-MiniCPM5-1B", "poolside-Laguna-S-2.1",
    "unsloth-mistral-Devstral-Small-2507",
)  # fmt: skip
NATIVE = ("qwen3", "qwen2.5", "qwq", "llama3.1", "llama3.2", "llama3.3", "gpt-oss",
          "mistral-v3", "mistral-v7", "mistral-nemo", "ministral")  # fmt: skip
SILENT = ("deepseek-v3", "deepseek-r1", "deepseek-v3.1", "phi-4")
WITHOUT = ("llama3.1-short", "gemma2", "gemma3", "mistral-v1", "phi-3.5")
# What comes behind an answer is no cue as behind a user's turn.
OTHER_CUE = ("google-gemma-4-31B-it", "deepseek-ai-DeepSeek-V3.2")


@cache
def collected(name):
    """Bytes, and the template's own special tokens."""
    source = (files_of("templates") / f"{name}.jinja").read_text()
    made = byte_vocabulary(source)
    made.tokenizer.add_special_tokens(["<BOS>", "<EOS>", *sorted(set(SPECIAL.findall(source)))])
    tokens = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
    return Vocabulary(made.tokenizer, tokens, source)


@pytest.fixture(params=(*NATIVE, *COLLECTED))
def native(request):
    """A model, and the ids of `transformers`' rendering."""
    if request.param in FAMILIES:
        made, render = vocabulary_of(request.param), judge_of(request.param)
    else:
        made = collected(request.param)
        text = judge(made)

        def render(messages, **options):
            return made.encode(text(messages, **options))

    handles.install(Hub(Client(), vocabulary=made).runtime)
    options = IN_SYSTEM.get(request.param, {})
    yield request.param, lambda messages, **more: render(messages, **options, **more)
    handles.install(None)


@pytest.fixture
def silent(request):
    handles.install(Hub(Client(), vocabulary=vocabulary_of(request.param)).runtime)
    yield
    handles.install(None)


def without_bos(ids):
    bos = chat.prefix() or model.encode(handles.current().vocabulary.named_token("bos_token") or "")
    return ids[len(bos) :] if bos and ids[: len(bos)] == bos else ids


def test_equip_and_the_first_user_are_the_rendering_token_for_token(native):
    _, render = native
    whole = without_bos(render([USER], tools=DECLARED, cue=True))
    assert tools.equip([ADD, FIND]) + chat.user(USER["content"]) + chat.cue() == whole


def test_an_answer_is_what_the_rendering_ends_with(native):
    name, render = native
    kimi = "functions.add:0" if "Kimi" in name else "call00000"
    call = {"id": kimi, "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    history = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    answer = {"role": "tool", "name": "add", "tool_call_id": kimi, "content": "It's 5 é\n"}
    has_cue = name not in OTHER_CUE
    whole = render([*history, answer], tools=DECLARED, cue=has_cue)
    end = tools.answer("add", answer["content"]) + (chat.cue() if has_cue else [])
    assert whole[len(whole) - len(end) :] == end
    # What comes before it ends as the turn of the call ends.
    call_turn = render(history, tools=DECLARED)
    opener = handles.current().vocabulary.token_id("<|tool_response>")
    call_turn = call_turn[:-1] if call_turn[-1] == opener else call_turn
    assert whole[: len(whole) - len(end)][-4:] == call_turn[-4:]


# Families whose templates write two calls in one turn.
PARALLEL = ("qwen", "qwq", "mistral", "ministral", "GLM", "Kimi-K2", "Qwen", "Coder", "DeepSeek",
            "gemma-4", "granite-4", "Laguna", "Spark", "StepFun", "MiMo", "Nemotron")  # fmt: skip
# What their templates write is no call of a markup that is known, or none at all.
LOOSE = ("ByteDance-Seed-OSS",)  # lists as Python writes them, which no grammar asks for
OTHER_CALLS = ("openbmb-MiniCPM5-1B", "ibm-granite-granite-3.3-2B-Instruct")
WRITING = [name for name in (*NATIVE, *SILENT[:3], *COLLECTED) if name not in OTHER_CALLS]
ARGUMENTS = {"add": {"a": 1, "b": ["x", "It's <\u00e9>"]}, "find": {"q": "x"}}


def turns_with_calls(names):
    """As templates of several kinds want to have them."""
    for content, write in itertools.product(("", None), (copy.deepcopy, json.dumps)):
        yield {
            "role": "assistant",
            "content": content,
            "tool_calls": [
                {
                    "id": f"call0000{index}",
                    "type": "function",
                    "function": {"name": name, "arguments": write(ARGUMENTS[name])},
                }
                for index, name in enumerate(names)
            ],
        }


def calls_of_turn(render, names):
    """The ids that the template has for a reply with these calls, and perhaps more before them."""
    for asked in turns_with_calls(names):
        with contextlib.suppress(TypeError, TemplateError):
            whole = render([USER, asked], tools=DECLARED)
            if b"It's <" in text_of(whole):
                break
    start = render([USER], tools=DECLARED)
    common = next((i for i, (a, b) in enumerate(zip(whole, start, strict=False)) if a != b), None)
    return whole[len(start) if common is None else common :]


def text_of(ids):
    return b"".join(handles.current().vocabulary.token_bytes(token) or b"" for token in ids)


def decoded(ids):
    decoder, found = tools.Decoder(), []
    event = decoder.feed(ids)
    while isinstance(event, tools.Event.Call):
        found.append((event.call.name, json.loads(event.call.arguments_json)))
        event = decoder.feed([])
    return found


def is_let_through(matcher, ids):
    """Whether a complete reply of calls is somewhere in the ids."""
    for start in range(len(ids)):
        matcher.reset()
        for token in ids[start:]:
            try:
                matcher.accept_tokens([token])
            except GrammarError:
                break
            if text_of([token])[-1:] in (b">", b"}", b"]", b")") and may_stop(matcher):
                return True
    return False


def may_stop(matcher):
    words = matcher.mask()
    return any(words[stop >> 5] >> (stop & 31) & 1 for stop in chat.stop_tokens())


@pytest.mark.parametrize("native", WRITING, indirect=True)
def test_calls_as_the_template_writes_them_are_read_and_let_through(native):
    name, render = native
    sets = [["add"], ["add", "find"]] if any(part in name for part in PARALLEL) else [["add"]]
    matcher = tools.create_matcher([ADD, FIND])
    for names in sets:
        ids = calls_of_turn(render, names)
        assert decoded(ids) == [(one, ARGUMENTS[one]) for one in names]
        assert is_let_through(matcher, ids) == (name not in LOOSE), text_of(ids)


@pytest.mark.parametrize("silent", SILENT, indirect=True)
def test_a_template_without_a_declaration_of_tools_has_one_in_a_system_turn(silent):
    text = model.decode(tools.equip([ADD]))
    assert '"name": "add"' in text and "function-name" in text
    system = chat.system("\u2042")
    head = model.decode(without_bos(system)).partition("\u2042")[0]
    assert text.startswith(head)


@pytest.mark.parametrize("silent", WITHOUT, indirect=True)
def test_a_model_without_a_tool_format_declares_nothing(silent):
    assert calls.of(handles.current().vocabulary) is None
    assert tools.equip([ADD]) == [] and tools.format([ADD]) is None
    assert "5" in model.decode(tools.answer("add", 5))
