"""Writes tiny GGUF files in the forms that llama.cpp's converter gives them."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

WIDTH, HEADS, KV_HEADS, INNER, LAYERS = 64, 4, 2, 96, 2
HEAD_DIM = WIDTH // HEADS
BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]


def byte_alphabet() -> list[str]:
    """GPT-2's 256 printable stand-ins for bytes, by byte."""
    extra = iter(range(256, 512))
    return [chr(byte) if byte in BYTES else chr(next(extra)) for byte in range(256)]


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ a", "a b", "1 2", "Ġ Ġ"]
TOKENS = [*SPECIAL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def weights(seed: int = 0, layers: int = LAYERS) -> dict[str, np.ndarray]:
    """Random float32 weights of a llama, by their Hugging Face names."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / 8).astype(np.float32)

    result = {"model.embed_tokens.weight": matrix(len(TOKENS), WIDTH)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        result |= {
            f"{prefix}.input_layernorm.weight": 1 + matrix(WIDTH),
            f"{prefix}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, WIDTH),
            f"{prefix}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
            f"{prefix}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
            f"{prefix}.self_attn.o_proj.weight": matrix(WIDTH, HEADS * HEAD_DIM),
            f"{prefix}.post_attention_layernorm.weight": 1 + matrix(WIDTH),
            f"{prefix}.mlp.gate_proj.weight": matrix(INNER, WIDTH),
            f"{prefix}.mlp.up_proj.weight": matrix(INNER, WIDTH),
            f"{prefix}.mlp.down_proj.weight": matrix(WIDTH, INNER),
        }
    return result | {"model.norm.weight": 1 + matrix(WIDTH)}


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of q and k rows: the two rotary halves of a head become pairs."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    path: Path,
    values: dict[str, np.ndarray],
    matrix_type: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str = "llama",
    pre: str = "smollm",
    omit: str = "",
    extra: dict[str, Any] | None = None,
) -> Path:
    """Writes the weights as llama.cpp would, matrices in the given format."""
    writer = GGUFWriter(path, architecture)
    _write_keys(writer, omit)
    _write_tokenizer(writer, pre)
    for key, value in (extra or {}).items():
        writer.add_key_value(key, value, _value_type(value))
    for name, value in values.items():
        value = _permuted(name, value) if architecture == "llama" else value
        kind = matrix_type if value.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_keys(writer: GGUFWriter, omit: str) -> None:
    keys = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "head_count": HEADS,
        "head_count_kv": KV_HEADS,
        "rope_freq_base": 100000.0,
        "layer_norm_rms_eps": 1e-5,
    }
    for key, value in keys.items():
        if key != omit:
            getattr(writer, f"add_{key}")(value)


def _write_tokenizer(writer: GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)


def _value_type(value: Any) -> Any:
    from gguf import GGUFValueType

    return GGUFValueType.STRING if isinstance(value, str) else GGUFValueType.UINT32


def _permuted(name: str, value: np.ndarray) -> np.ndarray:
    for part, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
        if part in name:
            return permute(value, heads)
    return value


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name
