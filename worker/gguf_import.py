"""GGUF -> a folder in Hugging Face's layout, once, when a model is added.

Owns: names, permutation and number formats of GGUF's llama family, and the safetensors it writes.
Refuses: architectures whose conversion has not been checked against transformers. Needs no torch:
tensors are dequantised one by one with the `gguf` package and streamed to disk.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.store_facts import StoreError

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

Report = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True)
class Family:
    """How one `general.architecture` maps to a transformers class."""

    model_class: str
    model_type: str
    permuted: bool = False  # llama.cpp interleaves the rotary halves of q and k rows


FAMILIES = {
    "llama": Family("LlamaForCausalLM", "llama", permuted=True),
    "qwen2": Family("Qwen2ForCausalLM", "qwen2"),
    "qwen3": Family("Qwen3ForCausalLM", "qwen3"),
}

TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

ROPE_FREQUENCIES = "rope_freqs.weight"

# Formats that safetensors can hold as they are; all others are dequantised to F32, without loss.
PLAIN_FORMATS = {"F32": 4, "F16": 2, "BF16": 2}


def convert(path: Path, folder: Path, report: Report) -> None:
    """Writes config.json, tokenizer files and model.safetensors for the GGUF file into `folder`."""
    from worker.gguf_tokenizer import write_tokenizer

    reader = open_reader(path)
    try:
        metadata = Metadata(reader, path)
        config = model_config(metadata, reader)
        tensors = list(plan_tensors(reader, metadata, config))
        _write_json(folder / "config.json", config)
        _write_json(folder / "generation_config.json", generation_config(metadata))
        write_tokenizer(metadata, config["max_position_embeddings"], folder)
        write_safetensors(folder / "model.safetensors", tensors, report)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise StoreError(f"`{path}` cannot be converted: {error}") from error


def open_reader(path: Path) -> "GGUFReader":
    """The file, mapped; StoreError when it is no complete GGUF file."""
    from gguf import GGUFReader

    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise StoreError(f"`{path}` is not a GGUF file: it does not start with `GGUF`")
    try:
        return GGUFReader(path)
    except Exception as error:  # a damaged file makes the reader fail in many ways
        raise StoreError(
            f"`{path}` is damaged or cut short: {error}", hint="download or copy the file again"
        ) from error


class Metadata:
    """The file's key-value pairs; keys of the architecture are asked for without its prefix."""

    def __init__(self, reader: "GGUFReader", path: Path) -> None:
        self._fields = reader.fields
        self.path = path
        self.architecture: str = self.get("general.architecture", "")

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a full key."""
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def own(self, key: str, default: Any = None) -> Any:
        """The value of `ARCHITECTURE.key`."""
        return self.get(f"{self.architecture}.{key}", default)

    def need(self, key: str) -> Any:
        """Like `own`, but its absence is an error."""
        value = self.own(key)
        if value is None:
            raise StoreError(f"`{self.path}` lacks the key `{self.architecture}.{key}`")
        return value

    def token_id(self, kind: str) -> int | None:
        """The id of the `bos`, `eos`, `unknown`, `padding`, `eot` … token."""
        return self.get(f"tokenizer.ggml.{kind}_token_id")


def model_config(metadata: Metadata, reader: "GGUFReader") -> dict[str, Any]:
    """The content of config.json."""
    family = _family(metadata)
    heads, width = metadata.need("attention.head_count"), metadata.need("embedding_length")
    names = {tensor.name: tensor for tensor in reader.tensors}
    config = {
        "architectures": [family.model_class],
        "model_type": family.model_type,
        "dtype": _config_dtype(reader),
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": metadata.need("feed_forward_length"),
        "num_hidden_layers": metadata.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.own("attention.head_count_kv", heads),
        "head_dim": metadata.own("attention.key_length", width // heads),
        "max_position_embeddings": metadata.need("context_length"),
        "rms_norm_eps": _shortest(metadata.need("attention.layer_norm_rms_epsilon")),
        "rope_parameters": _rope(metadata, names.get(ROPE_FREQUENCIES)),
        "tie_word_embeddings": "output.weight" not in names,
        # Shapes are in GGUF's order here: the fastest axis first.
        "vocab_size": int(names["token_embd.weight"].shape[1]),
        "use_cache": True,
    }
    if family.model_type == "llama":
        config |= {"attention_bias": False, "mlp_bias": False}
    for key, kind in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if metadata.token_id(kind) is not None:
            config[f"{key}_token_id"] = metadata.token_id(kind)
    return config


def generation_config(metadata: Metadata) -> dict[str, Any]:
    """Which tokens begin and end a text; a chat may end by more than one."""
    ends = [metadata.token_id(kind) for kind in ("eos", "eot", "eom")]
    ends = list(dict.fromkeys(end for end in ends if end is not None))
    config = {
        "bos_token_id": metadata.token_id("bos"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": metadata.token_id("padding"),
    }
    return {key: value for key, value in config.items() if value is not None}


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the output: where it comes from, and what it becomes."""

    name: str
    source: "ReaderTensor"
    format: str  # safetensors' name
    heads: int  # > 0: rows of so many heads are to be un-permuted

    @property
    def shape(self) -> list[int]:
        return [int(size) for size in reversed(self.source.shape)]

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape)) * PLAIN_FORMATS[self.format]

    def load(self) -> np.ndarray:
        """The values, in rows as transformers expects them."""
        from gguf import dequantize

        source = self.source
        if self.format == "F32":
            values = dequantize(source.data, source.tensor_type).reshape(self.shape)
        else:  # BF16 is raw bytes in the reader; only whole numbers are moved about
            values = source.data.view(np.uint16).reshape(self.shape)
        return unpermute(values, self.heads) if self.heads else values


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undoes llama.cpp's order of rotary rows: (even, odd) pairs become two halves per head."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def plan_tensors(
    reader: "GGUFReader", metadata: Metadata, config: dict[str, Any]
) -> Iterator[PlannedTensor]:
    """Every tensor of the output, in the file's order; a tensor that has no place is an error."""
    permuted = FAMILIES[metadata.architecture].permuted
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for source in reader.tensors:
        if source.name == ROPE_FREQUENCIES:
            continue  # in config.json as rope_parameters
        stem, suffix = source.name.rsplit(".", 1)
        kind = stem.rsplit(".", 1)[-1]
        format_name = source.tensor_type.name
        yield PlannedTensor(
            name=f"{_tensor_name(stem, metadata)}.{suffix}",
            source=source,
            format=format_name if format_name in PLAIN_FORMATS else "F32",
            heads=heads.get(kind, 0) if permuted else 0,
        )


def write_safetensors(path: Path, tensors: list[PlannedTensor], report: Report) -> None:
    """Streams the tensors to one file, so that memory holds one of them at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.num_bytes
        header[tensor.name] = {
            "dtype": tensor.format,
            "shape": tensor.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # readers map the data: keep it aligned
    done = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            values = tensor.load()
            if values.nbytes != tensor.num_bytes:
                raise ValueError(f"tensor `{tensor.name}` has {values.nbytes} bytes")
            file.write(np.ascontiguousarray(values).data)
            done += tensor.num_bytes
            report(done, end)
        file.flush()
        os.fsync(file.fileno())


def _family(metadata: Metadata) -> Family:
    family = FAMILIES.get(metadata.architecture)
    if family is None or metadata.own("expert_count"):
        kind = metadata.architecture + (" with experts" if family else "")
        raise StoreError(
            f"`{metadata.path}` holds a `{kind}` model, which cannot be converted from GGUF",
            hint=f"convertible are {', '.join(FAMILIES)}; take the model's safetensors folder",
        )
    return family


def _tensor_name(stem: str, metadata: Metadata) -> str:
    if stem in TOP_NAMES:
        return TOP_NAMES[stem]
    block, _, kind = stem.removeprefix("blk.").partition(".")
    if not stem.startswith("blk.") or kind not in BLOCK_NAMES:
        raise StoreError(
            f"`{metadata.path}` has a tensor `{stem}`, unknown for `{metadata.architecture}`"
        )
    return f"model.layers.{int(block)}.{BLOCK_NAMES[kind]}"


def _config_dtype(reader: "GGUFReader") -> str:
    """The format of most values; anything quantised was dequantised to F32."""
    sizes: dict[str, int] = {}
    for tensor in reader.tensors:
        format_name = tensor.tensor_type.name
        sizes[format_name] = sizes.get(format_name, 0) + int(tensor.n_elements)
    names = {"F16": "float16", "BF16": "bfloat16"}
    return names.get(max(sizes, key=lambda name: sizes[name]), "float32")


def _rope(metadata: Metadata, frequencies: "ReaderTensor | None") -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": _rope_theta(metadata)}
    kind = metadata.own("rope.scaling.type", "none")
    if kind == "linear":
        rope |= {"rope_type": "linear", "factor": metadata.need("rope.scaling.factor")}
    elif kind != "none":
        raise StoreError(f"`{metadata.path}` scales its positions by `{kind}`: not supported")
    return rope if frequencies is None else _llama3_rope(rope, metadata, frequencies)


def _rope_theta(metadata: Metadata) -> float:
    return _shortest(metadata.own("rope.freq_base", 10000.0))


def _llama3_rope(
    rope: dict[str, Any], metadata: Metadata, frequencies: "ReaderTensor"
) -> dict[str, Any]:
    """Llama 3.1 and later store divisors of the frequencies; transformers wants the rule itself."""
    divisors = np.asarray(frequencies.data, dtype=np.float32)
    rope |= {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if not np.allclose(divisors, _llama3_divisors(rope, len(divisors)), rtol=1e-4):
        raise StoreError(f"`{metadata.path}` has rotary divisors that follow no known rule")
    return rope


def _llama3_divisors(rope: dict[str, Any], half: int) -> np.ndarray:
    wavelengths = 2 * np.pi * rope["rope_theta"] ** (np.arange(half) / half)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    ratio = rope["original_max_position_embeddings"] / wavelengths
    smooth = np.clip((ratio - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / rope["factor"] + smooth)


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
