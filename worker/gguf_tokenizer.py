"""Tokenizer files of a model that came as GGUF, built from the file's metadata.

Owns byte-level BPE with the splitting rules listed here; other kinds are left to transformers.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.store_facts import StoreError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from worker.gguf_import import Metadata

CONTROL, USER_DEFINED = 3, 4  # GGUF's token types that are matched whole

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

# By `tokenizer.ggml.pre`: a regular expression, or one of two rules without one.
DIGITS, PLAIN = "single digits, then GPT-2's rule", "GPT-2's rule"
SPLITS = {
    "smollm": DIGITS,
    "gpt-2": PLAIN,
    "default": PLAIN,
    "llama-bpe": LLAMA3_SPLIT,
    "llama3": LLAMA3_SPLIT,
    "qwen2": QWEN2_SPLIT,
}


def write_tokenizer(metadata: "Metadata", context: int, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja into `folder`."""
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        tokenizer = byte_level_tokenizer(metadata)
    else:
        tokenizer = _by_transformers(metadata.path)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = tokenizer_config(metadata, context)
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    if template := metadata.get("tokenizer.chat_template"):
        # transformers looks here first; older readers only know the config's field.
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def tokenizer_config(metadata: "Metadata", context: int) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
    }
    for key, kind in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if (token_id := metadata.token_id(kind)) is not None:
            config[f"{key}_token"] = tokens[token_id]
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def byte_level_tokenizer(metadata: "Metadata") -> "Tokenizer":
    """The tokenizer that the file describes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    tokens = metadata.get("tokenizer.ggml.tokens")
    split = _split_rule(metadata)
    model = models.BPE(
        vocab={token: token_id for token_id, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])],
        # A word that is in the vocabulary as a whole is one token, whatever the merges say.
        ignore_merges=split == LLAMA3_SPLIT,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type", [])
    whole = [(token, kind) for token, kind in zip(tokens, types) if kind in (CONTROL, USER_DEFINED)]
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False, special=kind == CONTROL) for token, kind in whole]
    )
    if metadata.get("tokenizer.ggml.add_bos_token", False):
        _prepend_bos(tokenizer, tokens[metadata.token_id("bos")], metadata.token_id("bos"))
    return tokenizer


def _split_rule(metadata: "Metadata") -> str:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        raise StoreError(
            f"`{metadata.path}` has a tokenizer whose splitting rule `{name}` is unknown here",
            hint=f"known are {', '.join(SPLITS)}; take the model's safetensors folder",
        )
    return SPLITS[name]


def _pre_tokenizer(split: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if split == PLAIN:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split == DIGITS:
        first, rest = pre_tokenizers.Digits(individual_digits=True), True
    else:
        first, rest = pre_tokenizers.Split(Regex(split), behavior="isolated"), False
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rest)
    return pre_tokenizers.Sequence([first, byte_level])


def _prepend_bos(tokenizer: "Tokenizer", token: str, token_id: int) -> None:
    from tokenizers import processors

    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, token_id)]
    )


def _by_transformers(path: Path) -> "Tokenizer":
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return tokenizer.backend_tokenizer
