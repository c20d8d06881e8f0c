"""A very small llama-like model in plain torch, with random weights: the fast test tier's stand-in.

Every row is computed by itself, in the same order whatever else is in the batch, so a lane's result
is the same to the last bit alone, among others, in chunks, and on any pages. Not made for speed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from worker.model.base import Batch, ModelInfo

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_SIZE, INNER = 2, 32, 4, 2, 8, 64
ROPE_THETA = 10_000.0


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight^T`, but not by a matmul: its order of summation may depend on the number of rows."""
    return (x.unsqueeze(-2) * weight).sum(-1)


def _normalise(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of `[R, heads, HEAD_SIZE]`."""
    steps = torch.arange(0, HEAD_SIZE, 2, dtype=torch.float32, device=x.device) / HEAD_SIZE
    angles = positions[:, None, None].float() * ROPE_THETA**-steps
    cos, sin = angles.cos(), angles.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class _Layer:
    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        def weight(rows: int, columns: int) -> Tensor:
            values = torch.randn(rows, columns, generator=generator) * (1.5 / columns**0.5)
            return values.to(device)

        self.query = weight(HEADS * HEAD_SIZE, WIDTH)
        self.key = weight(KV_HEADS * HEAD_SIZE, WIDTH)
        self.value = weight(KV_HEADS * HEAD_SIZE, WIDTH)
        self.output = weight(WIDTH, HEADS * HEAD_SIZE)
        self.gate = weight(INNER, WIDTH)
        self.up = weight(INNER, WIDTH)
        self.down = weight(WIDTH, INNER)


class TinyModel:
    """Implements `worker.model.base.Model`. Equal arguments give equal weights on every machine."""

    def __init__(
        self,
        *,
        name: str = "tiny",
        seed: int = 0,
        vocab_size: int = 64,
        page_size: int = 16,
        context_length: int = 1024,
        device: str = "cpu",
    ) -> None:
        self.page_size = page_size
        self.device = torch.device(device)
        generator = torch.Generator().manual_seed(seed)
        self._embedding = torch.randn(vocab_size, WIDTH, generator=generator).to(self.device)
        self._head = torch.randn(vocab_size, WIDTH, generator=generator).to(self.device)
        self._layers = [_Layer(generator, self.device) for _ in range(LAYERS)]
        self._kv: Tensor | None = None
        self.mask_refusal: str | None = None
        self.info = ModelInfo(
            name=name,
            architecture="Tiny",
            path="",
            vocab_size=vocab_size,
            output_vocab_size=vocab_size,
            layers=LAYERS,
            context_length=context_length,
            outputs=("logits", "hidden"),
            width=WIDTH,
            dtype="float32",
        )

    def page_bytes(self) -> int:
        return LAYERS * 2 * self.page_size * KV_HEADS * HEAD_SIZE * 4

    def allocate(self, num_pages: int) -> None:
        # [layer, K or V, slot, KV head, element]: a page is page_size neighbouring slots.
        shape = (LAYERS, 2, num_pages * self.page_size, KV_HEADS, HEAD_SIZE)
        self._kv = torch.zeros(shape, device=self.device)

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        if not pairs:
            return
        pages = self._kv.unflatten(2, (-1, self.page_size))
        sources, destinations = torch.tensor(pairs, device=self.device).unbind(1)
        pages[:, :, destinations] = pages[:, :, sources]

    def save_pages(self, pages: Sequence[int]) -> list[Tensor]:
        return [self._kv.unflatten(2, (-1, self.page_size))[:, :, list(pages)].movedim(2, 0).cpu()]

    def load_pages(self, pages: Sequence[int], saved: Sequence[Tensor]) -> None:
        held = saved[0].to(self.device).movedim(0, 2)
        self._kv.unflatten(2, (-1, self.page_size))[:, :, list(pages)] = held

    def clear_pages(self, pages: Sequence[int]) -> None:
        self._kv.unflatten(2, (-1, self.page_size))[:, :, list(pages)] = 0

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        x = self._embedding[batch.token_ids]
        reads = self._readable_slots(batch)
        for number, layer in enumerate(self._layers):
            h = _normalise(x)
            key = _rotate(_linear(h, layer.key).unflatten(-1, (KV_HEADS, -1)), batch.positions)
            value = _linear(h, layer.value).unflatten(-1, (KV_HEADS, -1))
            self._write(number, batch.slot_mapping, key, value)
            query = _rotate(_linear(h, layer.query).unflatten(-1, (HEADS, -1)), batch.positions)
            x = x + _linear(self._attend(number, query, reads), layer.output)
            h = _normalise(x)
            gated = torch.nn.functional.silu(_linear(h, layer.gate)) * _linear(h, layer.up)
            x = x + _linear(gated, layer.down)
        return _normalise(x)[batch.readout_rows]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        return _linear(hidden, self._head)

    def _readable_slots(self, batch: Batch) -> list[Tensor]:
        """Per row, the slots that it reads. Rows past the last lane (padding) read slot 0."""
        indptr, kv_lens = batch.query_indptr_host.tolist(), batch.kv_lens.tolist()
        masked = {lane.lane: lane for lane in batch.masked}
        reads: list[Tensor] = []
        for lane, (start, end) in enumerate(itertools.pairwise(indptr)):
            if lane in masked:
                slots = self._slots(torch.tensor(list(masked[lane].pages), dtype=torch.int64))
                reads += [slots[: len(seen)][seen] for seen in masked[lane].visible]
                continue
            slots = self._slots(batch.page_table[lane].long())
            reads += [slots[: kv_lens[lane] - (end - row) + 1] for row in range(start, end)]
        padding = len(batch.token_ids) - len(reads)
        return reads + [torch.zeros(1, dtype=torch.int64, device=self.device)] * padding

    def _slots(self, pages: Tensor) -> Tensor:
        """All slots of these pages, in order."""
        offsets = torch.arange(self.page_size, device=self.device)
        return (pages.to(self.device)[:, None] * self.page_size + offsets).flatten()

    def _write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        kept = slots >= 0
        self._kv[layer, 0, slots[kept]] = key[kept]
        self._kv[layer, 1, slots[kept]] = value[kept]

    def _attend(self, layer: int, query: Tensor, reads: list[Tensor]) -> Tensor:
        return torch.stack([self._attend_row(layer, q, slots) for q, slots in zip(query, reads)])

    def _attend_row(self, layer: int, query: Tensor, slots: Tensor) -> Tensor:
        key, value = self._kv[layer, :, slots].repeat_interleave(HEADS // KV_HEADS, dim=2)
        scores = (key * query).sum(-1) / HEAD_SIZE**0.5  # [slots, heads]
        return (scores.softmax(0)[..., None] * value).sum(0).flatten()
