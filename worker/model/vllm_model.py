"""A model whose layers and attention kernels are vLLM's; pages, batches and scheduling are ours.

One forward is: our `Batch` renamed to vLLM's attention metadata, vLLM's module, the readout rows.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from vllm.config import VllmConfig
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    record_kv_cache_layout,
)
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.kv_cache_layout import KVCacheLayout

from ipc.types import ModelInfo
from worker.model.base import Batch, Progress
from worker.model.masked import plain_part
from worker.model.packed import SlotCopies
from worker.model.vllm_kernels import speed_up
from worker.model.vllm_loading import (
    join_world_of_one,
    load_module,
    make_config,
    set_current_vllm_config,
)
from worker.model.vllm_masked import MaskedAttention, mask_refusal

#: Fewer rows are padded to this many. The CPU's matrix kernel is up to a quarter faster at 4 rows
#: than at 1, and only at 1 does it sum in another order: padded, a row's bits do not depend on its
#: batch.
MIN_CPU_ROWS = 4
#: Pages beyond those of the pool, where slots that masked rows see are copied to. They take memory
#: when they are first used. Only on the CPU: elsewhere the host does not know what a row sees.
SCRATCH_PAGES = 128


@dataclass(slots=True)
class _Group:
    """Layers that share a KV shape, and so one tensor, and one attention metadata a forward."""

    spec: AttentionSpec
    builder: AttentionMetadataBuilder
    names: list[str]


def load_vllm(
    path: str,
    *,
    name: str,
    dtype: str,
    device: str,
    max_context: int | None,
    page_size: int | None,
    progress: Progress,
) -> VllmModel:
    """Loads the model folder `path`. Raises ValueError for a model that cannot be served."""
    config = make_config(
        path, dtype=dtype, device=device, max_context=max_context, page_size=page_size
    )
    with set_current_vllm_config(config):
        join_world_of_one()
        return VllmModel(load_module(config, progress), config, name=name, path=path)


class VllmModel:
    """Implements `worker.model.base.Model`."""

    def __init__(self, module: nn.Module, config: VllmConfig, *, name: str, path: str) -> None:
        self.page_size: int = config.cache_config.block_size
        self.device: torch.device = config.device_config.device
        self._module = module
        self._config = config
        self._layers: dict[str, AttentionLayerBase] = _attention_layers(config)
        self._layout = _choose_layout(self._layers, config)
        self._groups = self._group_layers()
        self._min_rows = MIN_CPU_ROWS if self.device.type == "cpu" else 1
        if self.device.type == "cpu":
            speed_up(self._layers.values())
        self.mask_refusal = mask_refusal(self._layers.values())
        self._masked: MaskedAttention | None = None
        if self.mask_refusal is None:
            layers = self._layers.values()
            self._masked = MaskedAttention(layers, self.page_size, self.device)
        self._kv: list[Tensor] = []
        self._scratch = range(0)
        self.info = _describe(config, name, path)

    def page_bytes(self) -> int:
        return sum(group.spec.page_size_bytes * len(group.names) for group in self._groups)

    def allocate(self, num_pages: int) -> None:
        if self._kv:
            raise RuntimeError("pages are allocated once")
        scratch = SCRATCH_PAGES if self.device.type == "cpu" and self._masked is not None else 0
        self._scratch = range(num_pages, num_pages + scratch)
        for group in self._groups:
            shape = (
                len(group.names),
                num_pages + scratch,
                group.spec.num_kv_heads,
                self.page_size,
                group.spec.head_size + group.spec.head_size_v,
            )
            kv = _zeros(shape, self._layout.stride_order, group.spec.dtype, self.device)
            for name, layer_kv in zip(group.names, kv):
                self._layers[name].bind_kv_cache(layer_kv)
            self._kv.append(kv)
        self._config.cache_config.num_gpu_blocks = num_pages

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        if not pairs:
            return
        sources, destinations = torch.tensor(pairs, device=self.device).unbind(1)
        for kv in self._kv:  # [layer, page, …]
            kv.index_copy_(1, destinations, kv.index_select(1, sources))

    def save_pages(self, pages: Sequence[int]) -> list[Tensor]:
        index = torch.tensor(pages, device=self.device)
        return [kv.index_select(1, index).movedim(1, 0).cpu() for kv in self._kv]

    def load_pages(self, pages: Sequence[int], saved: Sequence[Tensor]) -> None:
        index = torch.tensor(pages, device=self.device)
        for kv, held in zip(self._kv, saved):
            kv.index_copy_(1, index, held.to(self.device).movedim(0, 1))

    def clear_pages(self, pages: Sequence[int]) -> None:
        index = torch.tensor(pages, device=self.device)
        for kv in self._kv:  # [layer, page, …]
            kv.index_fill_(1, index, 0)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        padding = max(0, self._min_rows - len(batch.token_ids))
        slots = _padded(batch.slot_mapping, padding, -1)
        batch, copies = self._packed(batch)
        plain = plain_part(batch)
        metadata = self._metadata(plain, slots)
        with (
            set_forward_context(
                metadata,
                self._config,
                num_tokens=len(slots),
                slot_mapping=dict.fromkeys(metadata, slots),
            ),
            self._attending(batch, copies, has_plain_lanes=plain is not None),
        ):
            hidden = self._module(
                input_ids=_padded(batch.token_ids, padding, 0),
                positions=_padded(batch.positions, padding, 0),
            )
        return hidden[batch.readout_rows]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        num_rows = len(hidden)
        if num_rows == 0:
            shape = (0, self.info.output_vocab_size)
            return torch.empty(shape, dtype=torch.float32, device=self.device)
        if num_rows < self._min_rows:
            hidden = functional.pad(hidden, (0, 0, 0, self._min_rows - num_rows))
        return self._module.compute_logits(hidden)[:num_rows].float()

    def _packed(self, batch: Batch) -> tuple[Batch, SlotCopies | None]:
        if not batch.masked:
            return batch, None
        if self._masked is None:
            raise ValueError(self.mask_refusal)
        return self._masked.packed(batch, self._scratch)

    def _attending(
        self, batch: Batch, copies: SlotCopies | None, *, has_plain_lanes: bool
    ) -> contextlib.AbstractContextManager[None]:
        if not batch.masked and copies is None:
            return contextlib.nullcontext()
        return self._masked.attending(batch, copies, has_plain_lanes)

    def _metadata(self, batch: Batch | None, slots: Tensor) -> dict[str, object]:
        """Attention metadata by layer name: that of the kernel's lanes, if it has any.

        Padding rows are outside it: no lane has them.
        """
        if batch is None:
            return dict.fromkeys(self._layers)
        common = CommonAttentionMetadata(
            query_start_loc=batch.query_indptr,
            query_start_loc_cpu=batch.query_indptr_host,
            seq_lens=batch.kv_lens,
            num_reqs=batch.num_lanes,
            num_actual_tokens=batch.num_rows,
            max_query_len=batch.max_query_len,
            max_seq_len=batch.max_kv_len,
            block_table_tensor=batch.page_table,
            slot_mapping=slots,
            positions=batch.positions,
            causal=True,
        )
        metadata: dict[str, object] = {}
        for group in self._groups:
            metadata.update(dict.fromkeys(group.names, group.builder.build(0, common)))
        return metadata

    def _group_layers(self) -> list[_Group]:
        names: dict[tuple[type, AttentionSpec], list[str]] = {}
        for name, layer in self._layers.items():
            if getattr(layer, "kv_sharing_target_layer_name", None) is not None:
                raise ValueError(
                    f"layer {name} reads the KV pages of {layer.kv_sharing_target_layer_name}:"
                    " models whose layers share pages cannot be served"
                )
            spec = layer.get_kv_cache_spec(self._config)
            if not isinstance(spec, AttentionSpec) or spec.block_size != self.page_size:
                raise ValueError(
                    f"layer {name} keeps {type(spec).__name__} state in blocks of"
                    f" {getattr(spec, 'block_size', None)}: only attention layers with pages of"
                    f" {self.page_size} slots can be served"
                )
            names.setdefault((layer.get_attn_backend(), spec), []).append(name)
        return [
            _Group(spec, backend.get_builder_cls()(spec, group, self._config, self.device), group)
            for (backend, spec), group in names.items()
        ]


def _padded(rows: Tensor, count: int, value: int) -> Tensor:
    return functional.pad(rows, (0, count), value=value) if count else rows


def _attention_layers(config: VllmConfig) -> dict[str, AttentionLayerBase]:
    layers = config.compilation_config.static_forward_context
    return {name: layer for name, layer in layers.items() if isinstance(layer, AttentionLayerBase)}


def _choose_layout(layers: dict[str, AttentionLayerBase], config: VllmConfig) -> KVCacheLayout:
    """The layout that the kernels like best among those that keep each layer's pages together."""
    backends = {layer.get_attn_backend() for layer in layers.values()}
    layouts = get_supported_kv_cache_layouts(backends)
    layout = next(layout for layout in layouts if layout.is_layer_compact)
    record_kv_cache_layout(config.cache_config, layout.name)
    return layout


def _zeros(
    shape: tuple[int, ...], stride_order: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Zeros of a logical shape whose dimensions lie in memory in `stride_order`.

    On the CPU, memory is taken from the system page by page as it is first written: `torch.zeros`
    would write all of it.
    """
    physical = [shape[dimension] for dimension in stride_order]
    if device.type == "cpu":
        size = torch.Size(shape).numel() * dtype.itemsize
        zeros = torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(physical)
    else:
        zeros = torch.zeros(physical, dtype=dtype, device=device)
    return zeros.permute([stride_order.index(dimension) for dimension in range(len(shape))])


def _describe(config: VllmConfig, name: str, path: str) -> ModelInfo:
    model = config.model_config
    output_vocab_size = model.get_vocab_size()
    return ModelInfo(
        name=name,
        architecture=model.hf_config.model_type,
        path=path,
        vocab_size=_tokenizer_size(path) or output_vocab_size,
        output_vocab_size=output_vocab_size,
        layers=model.get_total_num_hidden_layers(),
        width=model.get_hidden_size(),
        context_length=model.max_model_len,
        dtype=str(model.dtype).removeprefix("torch."),
        outputs=("logits", "hidden"),
    )


def _tokenizer_size(path: str) -> int | None:
    """Number of ids that the tokenizer spells; None without a tokenizer file."""
    file = Path(path) / "tokenizer.json"
    return Tokenizer.from_file(str(file)).get_vocab_size() if file.is_file() else None
