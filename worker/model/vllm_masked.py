"""Masked lanes in vLLM's attention layers: which models can take them, and where pages keep K and V.

Every attention layer calls its `impl.forward`. Ours runs vLLM's for the plain lanes, then computes
the rows of masked ones. How a kernel packs a page is its own affair and differs by processor, so
it is found by writing to a page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionType

from worker.model.base import Batch
from worker.model.masked import (
    CHUNK_SLOTS,
    MAX_TILE_ROWS,
    HeadShape,
    ReadChunks,
    Slab,
    attend,
    plan,
)
from worker.model.packed import SlotCopies, pack

#: Numbers below this are exact in every type that pages may have.
DIGIT = 128


def mask_refusal(layers: Iterable[AttentionLayerBase]) -> str | None:
    """Why masked lanes cannot be computed in these layers; None: they can."""
    for layer in layers:
        if reason := _refusal(layer):
            return f"this model cannot take masks: a layer of it has {reason}"
    return None


def _refusal(layer: AttentionLayerBase) -> str | None:
    if type(layer) is not Attention:
        return f"attention of its own kind ({type(layer).__name__})"
    if layer.attn_type != AttentionType.DECODER:
        return f"{layer.attn_type} attention"
    if layer.sliding_window is not None:
        return f"an attention window of {layer.sliding_window} tokens"
    if layer.kv_cache_torch_dtype != layer.dtype:
        return f"pages of another type ({layer.kv_cache_dtype})"
    for name in ("alibi_slopes", "sinks"):
        if getattr(layer.impl, name, None) is not None:
            return name.replace("_", " ")
    return "a soft cap on attention" if getattr(layer.impl, "logits_soft_cap", None) else None


class MaskedAttention:
    """Stands between vLLM's attention layers and their kernels."""

    def __init__(self, layers: Iterable[Attention], page_size: int, device: torch.device) -> None:
        layers = list(layers)
        self._page_size, self._device = page_size, device
        self._largest = max(map(_head_shape, layers), key=_chunk_bytes)
        self._packings: dict[object, Packing] = {}
        self._slabs: list[Slab] = []
        self._copies: SlotCopies | None = None
        self._has_plain_lanes = True
        for layer in layers:
            self._wrap(layer)

    def packed(self, batch: Batch, scratch: Sequence[int]) -> tuple[Batch, SlotCopies | None]:
        """The batch with less masked lanes, if there are pages to be used as scratch."""
        return pack(batch, self._page_size, scratch) if scratch else (batch, None)

    @contextlib.contextmanager
    def attending(
        self, batch: Batch, copies: SlotCopies | None, has_plain_lanes: bool
    ) -> Iterator[None]:
        """Inside it, layers attend the masked lanes of `batch`, after these copies."""
        indptr = batch.query_indptr_host.tolist()
        self._slabs = plan(batch.masked, indptr, self._page_size, self._largest, self._device)
        self._copies, self._has_plain_lanes = copies, has_plain_lanes
        try:
            yield
        finally:
            self._slabs, self._copies, self._has_plain_lanes = [], None, True

    def _wrap(self, layer: Attention) -> None:
        kernel, scale = layer.impl.forward, layer.impl.scale

        def forward(
            layer: Attention,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            kv_cache: Tensor,
            metadata: object,
            output: Tensor,
            **quantisation: Tensor | None,
        ) -> Tensor:
            if self._copies is not None:
                self._packing(layer, kv_cache).copy(self._copies, kv_cache)
            if self._has_plain_lanes:
                kernel(layer, query, key, value, kv_cache, metadata, output, **quantisation)
            if self._slabs:
                packing = self._packing(layer, kv_cache)
                for slab in self._slabs:
                    attend(slab, query, packing.reader(kv_cache), scale, output)
            return output

        layer.impl.forward = forward

    def _packing(self, layer: Attention, kv_cache: Tensor) -> Packing:
        key = (_head_shape(layer), kv_cache.stride())
        if key not in self._packings:
            self._packings[key] = probe(layer, kv_cache)
        return self._packings[key]


def _head_shape(layer: Attention) -> HeadShape:
    group = layer.num_heads // layer.num_kv_heads
    return HeadShape(layer.num_kv_heads, group, layer.head_size, layer.head_size_v)


def _chunk_bytes(shape: HeadShape) -> int:
    return shape.chunk_bytes(MAX_TILE_ROWS, CHUNK_SLOTS)


@dataclass(slots=True)
class Packing:
    """Where a page of one KV head keeps its elements: places in the page's `[slots, D + Dv]`."""

    size: int  # D
    key_places: Tensor  # int64 [D * slots]: of element d of slot s at d * slots + s
    value_places: Tensor  # int64 [slots * Dv]: of element d of slot s at s * Dv + d
    in_halves: bool  # the places just count up and heads are contiguous, so nothing is to be sorted

    def reader(self, kv_cache: Tensor) -> ReadChunks:
        """Reads chunks of this layer's pages, `[pages, KV heads, slots, D + Dv]`."""
        read = self._read_halves if self.in_halves else self._read_any
        return lambda slab: read(slab, kv_cache)

    def _read_halves(self, slab: Slab, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        """Copies runs of memory only: K as rows of one element of all slots, V as whole heads."""
        heads, page_slots, size = kv_cache.shape[1], kv_cache.shape[2], self.size
        runs, halves = kv_cache.view(-1, page_slots), kv_cache.view(-1, page_slots * size)
        key_runs, value_halves = self._indices(slab, heads)
        num_keys, slots = len(slab.pages) * heads, slab.hidden.shape[-1]
        keys = slab.buffer("keys", (len(key_runs), page_slots), kv_cache)
        values = slab.buffer("values", (len(value_halves), page_slots * size), kv_cache)
        torch.index_select(runs, 0, key_runs, out=keys)
        torch.index_select(halves, 0, value_halves, out=values)
        keys, values = keys.view(num_keys, size, slots), values.view(num_keys, slots, size)
        return keys.float(), values.float()

    def _indices(self, slab: Slab, heads: int) -> tuple[Tensor, Tensor]:
        """Which runs and which halves the slab reads: the same in all layers."""
        if (heads, self.size) not in slab.indices:
            pages = slab.pages
            head = torch.arange(heads, device=pages.device)
            half = 2 * (pages[:, None] * heads + head[:, None])  # [C, heads, pages]
            element = torch.arange(self.size, device=pages.device)
            runs = half[:, :, None] * self.size + element[:, None]  # [C, heads, D, pages]
            slab.indices[heads, self.size] = runs.flatten(), (half + 1).flatten()
        return slab.indices[heads, self.size]

    def copy(self, copies: SlotCopies, kv_cache: Tensor) -> None:
        """Copies slots of this layer's pages."""
        shape = kv_cache.shape[1:]
        if shape not in copies.indices:
            found = (self._elements(slots, *shape) for slots in (copies.sources, copies.targets))
            copies.indices[shape] = tuple(found)
        sources, targets = copies.indices[shape]
        elements = kv_cache.view(-1)
        elements.index_copy_(0, targets, elements.index_select(0, sources))

    def _elements(self, slots: Tensor, heads: int, page_slots: int, width: int) -> Tensor:
        """Where the elements of these slots lie in a layer's memory."""
        page, slot = slots // page_slots, slots % page_slots
        keys = self.key_places.view(self.size, page_slots).t()[slot]  # [slots, D]
        values = self.value_places.view(page_slots, -1)[slot]
        places = torch.cat([keys, values], 1)[:, None]  # [slots, 1, D + Dv]
        head = page[:, None] * heads + torch.arange(heads)  # [slots, heads]
        return (head[:, :, None] * (page_slots * width) + places).flatten()

    def _read_any(self, slab: Slab, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        heads, page_slots, size = kv_cache.shape[1], kv_cache.shape[2], self.size
        shape = (*slab.pages.shape, heads)
        pages = kv_cache.index_select(0, slab.pages.flatten()).float().flatten(2)
        keys = pages[..., self.key_places].view(*shape, size, page_slots)
        values = pages[..., self.value_places].view(*shape, page_slots, -1)
        # [C, page, head, …] -> [C, head, …], with the pages of a chunk one after the other
        num_keys, slots = len(slab.pages) * heads, slab.hidden.shape[-1]
        keys = keys.permute(0, 2, 3, 1, 4).reshape(num_keys, size, slots)
        return keys, values.transpose(1, 2).reshape(num_keys, slots, -1)


def probe(layer: Attention, kv_cache: Tensor) -> Packing:
    """Finds the packing by writing a page of which every element has another number."""
    _, heads, slots, width = kv_cache.shape
    size, total = layer.head_size, slots * width
    numbers = torch.arange(heads * total, device=kv_cache.device).view(heads, total)
    keys = numbers[:, : slots * size].view(heads, slots, size).transpose(0, 1)
    values = numbers[:, slots * size :].view(heads, slots, width - size).transpose(0, 1)
    found, place = torch.zeros_like(numbers), 1
    while place < numbers.numel():
        page = _written(layer, kv_cache, *((x // place % DIGIT) for x in (keys, values)))
        found += page.flatten(1).long() * place
        place *= DIGIT
    # found[h][p] is the number of the element at place p of head h
    is_complete = torch.equal(found.sort(dim=1).values, numbers)
    if not is_complete or not torch.equal(found, found[0] + numbers[:, :1]):
        raise ValueError(
            f"{layer.layer_name} packs its pages in a way that masks cannot read: a page of a head"
            f" does not hold the {slots} slots' keys and values as they are"
        )
    places = found[0].argsort()
    key_places = places[: slots * size].view(slots, size).t().flatten()
    in_order = torch.equal(torch.cat([key_places, places[slots * size :]]), numbers[0])
    is_plain = kv_cache.is_contiguous() and width == 2 * size
    return Packing(size, key_places, places[slots * size :], in_order and is_plain)


def _written(layer: Attention, kv_cache: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The page, `[heads, slots, D + Dv]`, that these keys and values fill, written by the kernel."""
    pages = torch.zeros_like(kv_cache[:2])
    slots = torch.arange(len(keys), 2 * len(keys), device=keys.device)
    keys, values = (x.to(kv_cache.dtype).contiguous() for x in (keys, values))
    layer.impl.do_kv_cache_update(layer, keys, values, pages, slots)
    return pages[1]
