"""GGUF files become folders with the same weights, configuration and tokenizer."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize, quantize
from safetensors import safe_open
from tokenizers import Tokenizer

from tests.worker.tiny_gguf import (
    HEADS,
    KV_HEADS,
    TEMPLATE,
    TOKENS,
    weights,
    write_gguf,
)
from worker.gguf_import import convert, unpermute
from worker.store_facts import StoreError, read_facts


def ignore(*_: object) -> None:
    """Takes progress and does nothing."""


def load(folder: Path) -> dict[str, np.ndarray]:
    with safe_open(folder / "model.safetensors", "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = tmp_path / "converted"
    result.mkdir()
    return result


def test_unquantised_weights_come_out_as_they_went_in(tmp_path: Path, folder: Path) -> None:
    values = weights()
    convert(write_gguf(tmp_path / "tiny.gguf", values), folder, ignore)
    converted = load(folder)
    assert converted.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(converted[name], value, err_msg=name)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0])
def test_quantised_weights_are_dequantised_exactly(
    tmp_path: Path, folder: Path, kind: GGMLQuantizationType
) -> None:
    values = weights()
    convert(write_gguf(tmp_path / "tiny.gguf", values, kind), folder, ignore)
    name = "model.layers.1.mlp.down_proj.weight"
    np.testing.assert_array_equal(load(folder)[name], dequantize(quantize(values[name], kind), kind))
    assert read_facts(folder).dtype == "float32"


def test_half_precision_stays_half_precision(tmp_path: Path, folder: Path) -> None:
    values = weights()
    kind = GGMLQuantizationType.F16
    convert(write_gguf(tmp_path / "tiny.gguf", values, kind), folder, ignore)
    converted = load(folder)["model.layers.0.self_attn.q_proj.weight"]
    assert converted.dtype == np.float16
    np.testing.assert_array_equal(
        converted, values["model.layers.0.self_attn.q_proj.weight"].astype(np.float16)
    )
    assert read_facts(folder).dtype == "float16"


def test_rotary_rows_are_put_back_into_halves() -> None:
    # One head of four rows: llama.cpp stores (0, 2, 1, 3), pairs of first and second half.
    rows = np.array([[0], [2], [1], [3]])
    assert unpermute(rows, 1).tolist() == [[0], [1], [2], [3]]


def test_the_configuration_says_what_the_file_says(tmp_path: Path, folder: Path) -> None:
    convert(write_gguf(tmp_path / "tiny.gguf", weights()), folder, ignore)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 100000.0}
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] == len(TOKENS)
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


def test_a_separate_output_head_is_not_tied(tmp_path: Path, folder: Path) -> None:
    values = weights()
    values["lm_head.weight"] = values["model.embed_tokens.weight"] * 2
    convert(write_gguf(tmp_path / "tiny.gguf", values), folder, ignore)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    np.testing.assert_array_equal(load(folder)["lm_head.weight"], values["lm_head.weight"])


def test_transformers_computes_with_it_what_it_computes_with_the_original(
    tmp_path: Path, folder: Path
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    values = weights()
    convert(write_gguf(tmp_path / "tiny.gguf", values), folder, ignore)
    original = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    tensors = {name: torch.from_numpy(value) for name, value in values.items()}
    original.load_state_dict(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder).encode("ab 12<|im_end|>")])
    with torch.no_grad():
        expected = original.eval()(ids).logits
        found = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "12", ["1", "2"]),  # digits never merge, although a merge would allow it
        ("gpt-2", "12", ["12"]),
        ("llama-bpe", "12", ["12"]),
        ("qwen2", "12", ["1", "2"]),
        ("smollm", "  1", ["ĠĠ", "1"]),  # the space before a digit stays with the other space
        ("smollm", "ab a", ["ab", "Ġa"]),
        ("smollm", "<|im_start|>a", ["<|im_start|>", "a"]),
    ],
)
def test_text_is_split_by_the_rule_of_the_file(
    tmp_path: Path, folder: Path, pre: str, text: str, pieces: list[str]
) -> None:
    convert(write_gguf(tmp_path / "tiny.gguf", weights(), pre=pre), folder, ignore)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(text).tokens == pieces


def test_the_chat_template_is_where_both_kinds_of_readers_look(
    tmp_path: Path, folder: Path
) -> None:
    convert(write_gguf(tmp_path / "tiny.gguf", weights()), folder, ignore)
    assert (folder / "chat_template.jinja").read_text() == TEMPLATE
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["chat_template"] == TEMPLATE
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert read_facts(folder).chat_family == "chatml"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"architecture": "mamba"}, "`mamba` model, which cannot be converted"),
        ({"extra": {"llama.expert_count": 8}}, "`llama with experts` model"),
        ({"omit": "block_count"}, "lacks the key `llama.block_count`"),
        ({"pre": "nobody-knows"}, "splitting rule `nobody-knows` is unknown"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "scales its positions by `yarn`"),
    ],
)
def test_what_cannot_be_converted_exactly_is_refused(
    tmp_path: Path, folder: Path, arguments: dict, message: str
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", weights(), **arguments)
    with pytest.raises(StoreError, match=message) as caught:
        convert(path, folder, ignore)
    assert str(path) in str(caught.value)


def test_an_unknown_tensor_is_refused(tmp_path: Path, folder: Path) -> None:
    values = weights() | {"surprise.weight": np.zeros((4, 4), np.float32)}
    with pytest.raises(StoreError, match="has a tensor `surprise`"):
        convert(write_gguf(tmp_path / "tiny.gguf", values), folder, ignore)


def test_a_file_that_is_cut_short_is_named(tmp_path: Path, folder: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", weights())
    whole = path.read_bytes()
    for length in (8, 200, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"tiny\.gguf` is damaged or cut short"):
            convert(path, folder, ignore)


def test_a_file_of_another_kind_is_named(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "picture.gguf"
    path.write_bytes(b"\x89PNG\r\n")
    with pytest.raises(StoreError, match=r"picture\.gguf` is not a GGUF file"):
        convert(path, folder, ignore)


def test_progress_ends_at_the_total(tmp_path: Path, folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    convert(
        write_gguf(tmp_path / "tiny.gguf", weights()),
        folder,
        lambda done, total: steps.append((done, total)),
    )
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] == sum(value.nbytes for value in weights().values())
