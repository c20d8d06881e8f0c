"""Facts about one model folder, read from its JSON files and safetensors headers alone.

Owns: what makes a folder a usable model, and which file is at fault when it is none. Imports no
torch and never reads weights, so that listing a store takes milliseconds.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A mark in the chat template -> the family's name; the first that is found.
CHAT_FAMILIES = {
    "<|im_start|>": "chatml",
    "<|start_header_id|>": "llama3",
    "<start_of_turn>": "gemma",
    "<|start|>": "harmony",
    "[INST]": "mistral",
}

DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
INDEX = "model.safetensors.index.json"


class StoreError(Exception):
    """The store cannot do what was asked: what is wrong, and what to do about it.

    `exit_code` is 2 when the request or its input is at fault, 3 when the machine is.
    """

    def __init__(self, message: str, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


@dataclass(frozen=True)
class Facts:
    """What can be known about a model without loading it."""

    architecture: str
    parameters: int
    dtype: str
    size: int  # bytes of all files
    context: int | None
    layers: int | None
    vocabulary: int | None
    chat_family: str | None
    outputs: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)  # execution modes: a plain text model has none


def read_facts(folder: Path) -> Facts:
    """Facts of the model in `folder`; StoreError names the file that is missing or damaged."""
    config = read_json(folder / "config.json")
    text = config.get("text_config", config)  # models with images keep the language part apart
    architectures = config.get("architectures") or []
    if not architectures:
        raise StoreError(f"`{folder / 'config.json'}` names no architecture")
    if not (folder / "tokenizer.json").is_file():
        raise StoreError(f"`{folder}` has no `tokenizer.json`")
    dtypes, parameters = _count_weights(folder)
    stored = config.get("dtype") or config.get("torch_dtype") or text.get("dtype")
    return Facts(
        architecture=architectures[0],
        parameters=parameters,
        dtype=stored or DTYPES.get(dtypes, dtypes.lower()),
        size=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        context=text.get("max_position_embeddings"),
        layers=text.get("num_hidden_layers"),
        vocabulary=text.get("vocab_size"),
        chat_family=_chat_family(folder),
        outputs=["logits", "hidden"] if architectures[0].endswith("ForCausalLM") else ["logits"],
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; StoreError says what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"`{path.parent}` has no `{path.name}`") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"`{path}` cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"`{path}` does not hold a JSON object")
    return value


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of the model; each of them exists."""
    if (folder / INDEX).is_file():
        shards = read_json(folder / INDEX).get("weight_map", {}).values()
        files = [folder / shard for shard in sorted(set(shards))]
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise StoreError(f"`{folder}` has no weights: no `*.safetensors`")
    for file in files:
        if not file.is_file():
            raise StoreError(f"`{folder}` lacks `{file.name}`, which `{INDEX}` lists")
    return files


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor name -> dtype, shape, data_offsets; StoreError when the file is damaged or short."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise StoreError(f"`{path}` is damaged: no safetensors header")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            end = max(tensor["data_offsets"][1] for tensor in header.values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"`{path}` is damaged: {error}") from error
    if size != 8 + length + end:
        raise StoreError(f"`{path}` has {size} bytes, but its header describes {8 + length + end}")
    return header


def _count_weights(folder: Path) -> tuple[str, int]:
    """The dtype of most parameters, and how many parameters there are."""
    counts: Counter[str] = Counter()
    for path in weight_files(folder):
        for tensor in read_header(path).values():
            counts[tensor["dtype"]] += math.prod(tensor["shape"])
    return counts.most_common(1)[0][0], counts.total()


def _chat_family(folder: Path) -> str | None:
    template = _chat_template(folder)
    return next((name for mark, name in CHAT_FAMILIES.items() if mark in template), None)


def _chat_template(folder: Path) -> str:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if not (folder / "tokenizer_config.json").is_file():
        return ""
    template = read_json(folder / "tokenizer_config.json").get("chat_template") or ""
    if isinstance(template, list):  # several, each with a name
        return " ".join(str(entry.get("template", "")) for entry in template)
    return template
