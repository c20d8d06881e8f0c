"""Real tokenizers with their chat templates, by family, and `transformers` as the judge of both."""

import ast
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from inferlet.runtime.tokenizer import Vocabulary
from tests.packages import files_of

PHI3_TOKENS = {
    "<|endoftext|>": 32000, "<|assistant|>": 32001, "<|system|>": 32006, "<|end|>": 32007,
    "<|user|>": 32010,
}  # fmt: skip
PHI4_TOKENS = {"<|im_start|>": 100264, "<|im_end|>": 100265, "<|im_sep|>": 100266}


def _packaged(package: str, template: str = "", **config: str) -> Vocabulary:
    """A package's tokenizer, with the template of its own or one of the collection's."""
    made = _loaded(package)
    source = _collected(template) if template else made.template
    return Vocabulary(made.tokenizer, {**made.config, **config}, source)


@cache
def _loaded(package: str) -> Vocabulary:
    return Vocabulary.load(files_of(package))


def _collected(name: str) -> str:
    return (files_of("templates") / f"{name}.jinja").read_text("utf-8")


def _from_python(name: str) -> str:
    """A template that a package's module holds as a constant."""
    tree = ast.parse((files_of("more_templates") / "chat_templates.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def _mistral(file: str, template: str = "", **tokens: str) -> Vocabulary:
    """`tokens`: names for control tokens that a later model of the family gave a use."""
    common = pytest.importorskip("mistral_common", reason="carries the tokenizers of Mistral")
    path = Path(common.__file__).parent / "data" / file
    tokenizer, source = _convert(path)
    if tokens:
        text = tokenizer.to_str()
        for old, new in tokens.items():
            text = text.replace(json.dumps(f"<{old}>"), json.dumps(new))
        tokenizer = Tokenizer.from_str(text)
    source = _collected(template) if template else source
    return Vocabulary(tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, source)


@cache
def _convert(path: Path) -> tuple[Tokenizer, str]:
    from mistral_common.integrations.chat_templates.chat_templates import (
        convert_tokenizer_to_chat_template,
    )

    source = convert_tokenizer_to_chat_template(str(path))
    if path.suffix == ".json":
        from transformers.integrations.mistral.tokenizer import convert_tekken_tokenizer

        return convert_tekken_tokenizer(str(path))._tokenizer, source
    from transformers import LlamaTokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder, "tokenizer.model"))
        return LlamaTokenizerFast.from_pretrained(folder)._tokenizer, source


def _with_tokens(package: str, ids: dict[str, int], template: str, eos: str) -> Vocabulary:
    """A tokenizer that a model of another family took over, with its own control tokens."""
    state = json.loads((files_of(package) / "tokenizer.json").read_text("utf-8"))
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    known = {entry["content"] for entry in state["added_tokens"]}
    state["added_tokens"] += [
        {"id": number, "content": token, "special": True, **plain}
        for token, number in ids.items()
        if token not in known
    ]
    config = {**_loaded(package).config, "eos_token": eos}
    return Vocabulary(Tokenizer.from_str(json.dumps(state)), config, template)


def _phi3() -> Vocabulary:
    template = _collected("microsoft-Phi-3.5-mini-instruct")
    return _with_tokens("llama2", PHI3_TOKENS, template, "<|endoftext|>")


def _phi4() -> Vocabulary:
    return _with_tokens("cl100k", PHI4_TOKENS, _from_python("phi4_template"), "<|im_end|>")


def _mistral_v1() -> Vocabulary:
    made = _mistral("tokenizer.model.v1")
    return Vocabulary(made.tokenizer, made.config, _from_python("mistral_template"))


def vicuna() -> Vocabulary:
    made = _loaded("llama2")
    return Vocabulary(made.tokenizer, made.config, _from_python("vicuna_template"))


# The name of a family and a version -> what makes its vocabulary.
FAMILIES: dict[str, Callable[[], Vocabulary]] = {
    "qwen3": partial(_packaged, "qwen3"),
    "qwen2.5": partial(_packaged, "qwen3", "Qwen-Qwen2.5-7B-Instruct"),
    "qwq": partial(_packaged, "qwen3", "Qwen-QwQ-32B"),
    "llama3": partial(_packaged, "llama3"),
    "llama3.1-short": partial(_packaged, "llama3_1"),
    "llama3.1": partial(_packaged, "llama3_1", "meta-llama-Llama-3.1-8B-Instruct"),
    "llama3.2": partial(_packaged, "llama3_1", "meta-llama-Llama-3.2-3B-Instruct"),
    "llama3.3": partial(_packaged, "llama3_1", "meta-llama-Llama-3.3-70B-Instruct"),
    "gemma2": partial(_packaged, "gemma2"),
    "gemma3": partial(_packaged, "gemma3"),
    "deepseek-v3": partial(_packaged, "deepseek_v3"),
    "deepseek-r1": partial(
        _packaged, "deepseek_v3", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"
    ),
    "deepseek-v3.1": partial(_packaged, "deepseek_v3", "deepseek-ai-DeepSeek-V3.1"),
    "deepseek-v4": partial(_packaged, "deepseek_v4", "deepseek-ai-DeepSeek-V4"),
    "gpt-oss": partial(_packaged, "gptoss", "openai-gpt-oss-120b"),
    "mistral-v1": _mistral_v1,
    "mistral-v3": partial(_mistral, "mistral_instruct_tokenizer_240323.model.v3"),
    "mistral-v7": partial(_mistral, "mistral_instruct_tokenizer_241114.model.v7"),
    "mistral-nemo": partial(
        _mistral, "tekken_240718.json", "mistralai-Mistral-Nemo-Instruct-2407"
    ),
    "ministral": partial(
        _mistral, "tekken_240718.json", "mistralai-Ministral-3-14B-Reasoning-2512",
        SPECIAL_17="[SYSTEM_PROMPT]", SPECIAL_18="[/SYSTEM_PROMPT]",
        SPECIAL_34="[THINK]", SPECIAL_35="[/THINK]",
    ),
    "phi-3.5": _phi3,
    "phi-4": _phi4,
}  # fmt: skip


@cache
def vocabulary_of(family: str) -> Vocabulary:
    return FAMILIES[family]()


@cache
def judge_of(family: str) -> Callable[..., list[int]]:
    """The ids of `transformers`' own rendering."""
    made = vocabulary_of(family)
    render = judge(made)
    return lambda messages, **options: made.encode(render(messages, **options))


def judge(made: Vocabulary) -> Callable[..., str]:
    """`transformers`' own rendering."""
    from transformers import PreTrainedTokenizerFast

    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    tokens = {name: made.named_token(name) for name in names if made.named_token(name)}
    # It renders alone; to take over a large tokenizer, it would copy it for seconds.
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), chat_template=made.template, **tokens
    )

    def render(messages: list[dict[str, str]], *, cue: bool = False, **options: object) -> str:
        return tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=cue, **options
        )

    return render


def message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
