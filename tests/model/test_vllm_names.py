"""The names and signatures of vLLM that `worker/model/` leans on: what to mend when they move."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator

import pytest

from worker.model import vllm_environment

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True, scope="module")
def prepared() -> Iterator[None]:
    vllm_environment.prepare()
    with vllm_environment.stdout_on_stderr():
        yield


def find(path: str) -> object:
    """The object that `module:qualified.name` spells."""
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


CALLS = {
    "vllm.engine.arg_utils:EngineArgs": {
        "model",
        "tokenizer",
        "skip_tokenizer_init",
        "dtype",
        "max_model_len",
        "block_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "enforce_eager",
        "enable_prefix_caching",
        "use_tqdm_on_load",
    },
    "vllm.distributed:init_distributed_environment": {
        "world_size",
        "rank",
        "local_rank",
        "backend",
    },
    "vllm.distributed:ensure_model_parallel_initialized": {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
    },
    "vllm.forward_context:set_forward_context": {
        "attn_metadata",
        "vllm_config",
        "num_tokens",
        "slot_mapping",
    },
    "vllm.model_executor.model_loader.default_loader:DefaultModelLoader.load_model": {
        "vllm_config",
        "model_config",
    },
    "vllm.model_executor.model_loader.default_loader:DefaultModelLoader.get_all_weights": {
        "model_config",
        "model",
    },
    "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.forward": {
        "layer",
        "query",
        "key",
        "value",
        "kv_cache",
        "attn_metadata",
        "output",
        "output_scale",
        "output_block_scale",
    },
    "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.do_kv_cache_update": {
        "layer",
        "key",
        "value",
        "kv_cache",
        "slot_mapping",
    },
    "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase.bind_kv_cache": {
        "kv_cache"
    },
    "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase.get_kv_cache_spec": {
        "vllm_config"
    },
    "vllm.v1.attention.backend:AttentionMetadataBuilder": {
        "kv_cache_spec",
        "layer_names",
        "vllm_config",
        "device",
    },
    "vllm.v1.attention.backend:AttentionMetadataBuilder.build": {
        "common_prefix_len",
        "common_attn_metadata",
    },
    "vllm.v1.attention.backends.utils:get_supported_kv_cache_layouts": {"backends"},
    "vllm.v1.attention.backends.utils:record_kv_cache_layout": {"cache_config", "layout_name"},
    "vllm.ir.op:IrOp.register_impl": {"provider", "supports_args", "inplace"},
    "vllm.ir.op:IrOp.set_default": {"priority"},
}


@pytest.mark.parametrize("path", CALLS)
def test_a_callable_takes_the_arguments_that_we_give(path: str) -> None:
    assert CALLS[path] <= set(inspect.signature(find(path)).parameters)


def test_attention_metadata_has_our_fields_and_demands_no_others() -> None:
    fields = dataclasses.fields(find("vllm.v1.attention.backend:CommonAttentionMetadata"))
    demanded = {field.name for field in fields if field.default is dataclasses.MISSING}
    given = {
        "query_start_loc",
        "query_start_loc_cpu",
        "seq_lens",
        "num_reqs",
        "num_actual_tokens",
        "max_query_len",
        "max_seq_len",
        "block_table_tensor",
        "slot_mapping",
        "positions",
        "causal",
    }
    assert demanded <= given <= {field.name for field in fields}


def test_a_kv_layout_says_how_its_five_dimensions_lie() -> None:
    layout = find("vllm.v1.kv_cache_layout:KVCacheLayout.LBHNC")
    assert layout.stride_order == (0, 1, 2, 3, 4)
    assert layout.is_layer_compact


def test_an_attention_spec_gives_the_shape_of_a_page() -> None:
    spec = find("vllm.v1.kv_cache_interface:FullAttentionSpec")
    torch = importlib.import_module("torch")
    page = spec(block_size=32, num_kv_heads=3, head_size=64, dtype=torch.float32)
    assert (page.block_size, page.num_kv_heads, page.head_size_v) == (32, 3, 64)
    assert page.page_size_bytes == 32 * 3 * 128 * 4


def test_an_attention_layer_tells_what_masks_ask_of_it() -> None:
    source = inspect.getsource(find("vllm.model_executor.layers.attention:Attention.__init__"))
    for name in (
        "attn_type",
        "head_size",
        "head_size_v",
        "impl",
        "kv_cache",
        "kv_cache_dtype",
        "kv_cache_torch_dtype",
        "kv_sharing_target_layer_name",
        "layer_name",
        "num_heads",
        "num_kv_heads",
        "sliding_window",
    ):
        assert f"self.{name} = " in source or f"self.{name}:" in source
    source = inspect.getsource(find("vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl"))
    for name in ("scale", "logits_soft_cap", "alibi_slopes", "sinks"):
        assert f"self.{name} = " in source


def test_layers_call_the_forward_of_their_implementation() -> None:
    """The place where masked lanes step in."""
    attention = "vllm.model_executor.layers.attention.attention"
    source = inspect.getsource(find(f"{attention}:unified_attention_with_output"))
    assert "self.impl.forward(" in source


def test_the_norms_are_ir_ops_that_a_provider_can_join() -> None:
    importlib.import_module("worker.model.vllm_kernels")
    for name in ("rms_norm", "fused_add_rms_norm"):
        assert "pie_cpu" in find(f"vllm.ir:ops.{name}").impls


def test_the_cpu_ships_kernels_for_norms() -> None:
    assert find("vllm.platforms:current_platform").device_type == "cpu"
    torch = importlib.import_module("torch")
    assert hasattr(torch.ops._C, "rms_norm")
    assert hasattr(torch.ops._C, "fused_add_rms_norm")


def test_buffers_hold_a_full_wave_and_a_whole_pass_beside_it():
    from worker.config import Config
    from worker.model.vllm_loading import MAX_LANES, MAX_ROWS

    assert Config().row_budget + Config().max_embed_length <= MAX_ROWS
    assert Config().row_budget <= MAX_LANES
