"""Replies of `canitoolcall` as the token ids of real models, in groups of tokens."""

from functools import cache

import pytest
from canitoolcall import chunking

from inferlet import tools
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub
from tests.inferlet.template_support import vocabulary_of
from tests.inferlet.test_tool_corpus import FIXTURES, check, observe
from tests.packages import files_of

pytestmark = pytest.mark.timeout(900)  # the first run fetches packages
MODELS = {  # of the corpus, and the family that has their tokenizer and their template
    "Qwen/Qwen3-Coder": "qwen3-coder", "Qwen/Qwen3-": "qwen3", "openai/gpt-oss": "gpt-oss",
    "deepseek-ai/DeepSeek-V3-": "deepseek-v3", "deepseek-ai/DeepSeek-V3.1": "deepseek-v3.1",
    "meta-llama/Llama-3.3": "llama3.3", "mistralai/Mistral-7B": "mistral-v3",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_model_stays():
    yield
    handles.install(None)


def family_of(model):
    return next((family for start, family in MODELS.items() if model.startswith(start)), None)


@cache
def vocabulary(family):
    if family != "qwen3-coder":
        return vocabulary_of(family)
    plain = vocabulary_of("qwen3")
    template = (files_of("templates") / "Qwen3-Coder.jinja").read_text()
    return Vocabulary(plain.tokenizer, plain.config, template)


REPLIES = [f for f in FIXTURES if f.output_token_ids and family_of(f.reference_model)]


def test_there_are_many_replies():
    assert len(REPLIES) > 150


@pytest.mark.parametrize("fixture", REPLIES, ids=lambda fixture: fixture.id)
def test_a_reply_of_real_tokens_gives_its_calls_and_its_reasoning(fixture):
    made, ids = vocabulary(family_of(fixture.reference_model)), list(fixture.output_token_ids)
    text = b"".join(made.token_bytes(token) or b"" for token in ids).decode()
    if text != fixture.raw_output:
        pytest.skip("its tokens are of another version of the tokenizer")
    handles.install(Hub(Client(), vocabulary=made).runtime)
    tools.equip(fixture.tools)
    special = {token for token in ids if token in made.added}
    for strategy in chunking.DEFAULT_STRATEGIES:
        check(fixture, *observe(fixture, chunking.split(ids, strategy, special), made.encode))
