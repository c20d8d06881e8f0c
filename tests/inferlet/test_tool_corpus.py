"""The 469 replies of `canitoolcall`, each in all its chunkings: their calls and their reasoning."""

import json
import re
from functools import cache

import pytest
from canitoolcall import checks, chunking, fixtures

from inferlet import reasoning, tools
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

FIXTURES = fixtures.load_fixtures()
FAMILIES = fixtures.load_families()
STRATEGIES = (*chunking.DEFAULT_STRATEGIES, chunking.ChunkStrategy("char", seed=0))
# What is in the template or the vocabulary of these models, and tells their markups.
MARKERS = {
    "deepseek-ai/DeepSeek-V3.2": "｜DSML｜ <think> </think>",
    "deepseek-ai/DeepSeek-V3": "<｜tool▁call▁begin｜> <think> </think>",
    "deepseek-ai/DeepSeek-V4": "｜DSML｜ <think> </think>",
    "google/gemma-4": "<|tool_call> <|channel>thought\n <channel|>",
    "zai-org/GLM": "<arg_key> <think> </think>",
    "openai/gpt-oss": "<|constrain|> <|channel|>analysis<|message|> <|end|>",
    "moonshotai/Kimi-K3": '<|open|>call tool=" <|open|>think<|sep|> <|close|>think<|sep|>',
    "moonshotai/Kimi-K2": "<|tool_call_begin|> <think> </think>",
    "meta-llama/Llama-3": "<|python_tag|>",
    "meta-llama/Llama-4": "<|python_start|>",
    "mistralai/Magistral-Small-2506": "[TOOL_CALLS] <think> </think>",
    "mistralai/": "[TOOL_CALLS] [THINK] [/THINK]",
    "Qwen/Qwen3-Coder": "<function=",
    "Qwen/Qwen3.": "<function= <think> </think>",
    "Qwen/Qwen3-": "<tool_call> <think> </think>",
}


# All calls of all fixtures are right. These differ in their reasoning, by the contract's section 5.
CONTRACT_ON_REASONING = {
    "kimi/k3-bug-response-only-completion": "a block that the cue opened lasts to its end marker",
    "mistral/v13think-marker-in-arguments": "a complete open marker begins a block, in a call too",
    "qwen3-hermes/marker-in-arguments": "a complete open marker begins a block, in a call too",
    "qwen3-xml/llamacpp-q35-call-inside-think": "only the close marker ends a block, not a call",
}


@cache
def vocabulary_of(model):
    markers = next(markers for start, markers in MARKERS.items() if model.startswith(start))
    return byte_vocabulary(CHATML + f"{{# {markers} #}}")


@pytest.fixture(autouse=True)
def no_model_stays():
    yield
    handles.install(None)


def pieces_of(fixture, strategy):
    markers = sorted(FAMILIES[fixture.family].markers, key=len, reverse=True)
    unit = "|".join([*map(re.escape, markers), r"\w+", r"\s+", "."])
    units = re.findall(unit, fixture.raw_output, re.DOTALL)
    if strategy.kind == "char":
        return chunking.split_text(fixture.raw_output, strategy)
    return ["".join(group) for group in chunking.split(units, strategy, markers)]


def observe(fixture, pieces, encode=lambda text: list(text.encode())):
    """The calls and the reasoning that the decoders give for pieces, which are lists of tokens."""
    decoder = tools.Decoder()
    model = FAMILIES[fixture.family].reference_for(fixture.reference_model)
    prompt = fixture.generation_prompt or model.default_generation_prompt
    thought = reasoning.Decoder.for_cue(encode(prompt))
    calls, text = [], []
    for tokens in [*pieces, *[[]] * 12]:
        event = decoder.feed(tokens)
        if isinstance(event, tools.Event.Call):
            calls.append((event.call.name, checks.canonical_arguments(event.call.arguments_json)))
        event = thought.feed(tokens)
        if isinstance(event, reasoning.Event.Delta):
            text.append(event.text)
    return calls, "".join(text).strip()


def check(fixture, calls, thought):
    expected = fixture.expected
    assert calls == [
        (call.name, checks.canonical_arguments(json.dumps(call.arguments)))
        for call in (expected.tool_calls if expected else ())
    ]
    if expected:
        is_right = thought == (expected.reasoning_content or "").strip()
        assert is_right == (fixture.id not in CONTRACT_ON_REASONING)


def test_the_corpus_is_whole():
    assert len(FIXTURES) == 469
    assert set(CONTRACT_ON_REASONING) < {fixture.id for fixture in FIXTURES}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.id)
def test_a_reply_gives_its_calls_and_its_reasoning_however_it_is_cut(fixture):
    handles.install(Hub(Client(), vocabulary=vocabulary_of(fixture.reference_model)).runtime)
    tools.equip(fixture.tools)
    for strategy in STRATEGIES:
        pieces = [list(piece.encode()) for piece in pieces_of(fixture, strategy)]
        check(fixture, *observe(fixture, pieces))
