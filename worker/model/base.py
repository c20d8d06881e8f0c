"""What the worker needs of a model: `Batch` in, hidden states and logits out, KV pages between.

Owns the names that every model follows. Knows no model, no vLLM, no scheduling: who gets which page
is decided elsewhere, a model only reads and writes the slots that a batch names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ipc.types import ModelInfo

#: Called while weights load: share done in [0, 1], and what is being done.
Progress = Callable[[float, str], None]


@dataclass(slots=True)
class MaskedLane:
    """A lane of the batch whose rows attend what is said here, and not its causal extent.

    Slot s of the list is the slot `s % page_size` of page `pages[s // page_size]`. The lane's own
    pages usually come first, then pages of other lanes; a page may be listed that no row attends.
    A row that attends nothing gets zeros from attention. What lies in a slot that a row does not
    attend never reaches that row, be it NaN.
    """

    lane: int
    pages: Sequence[int]
    visible: Tensor  # bool [rows of the lane, at most len(pages) * page_size]: the rest is hidden


@dataclass(slots=True)
class Batch:
    """The tensors of one forward: R rows in L lanes, on the model's device unless said otherwise.

    Rows of lane i are `[query_indptr[i], query_indptr[i + 1])`. Its row j of q reads the slots
    `[0, kv_lens[i] - q + j + 1)` of its pages: causal, aligned to the *end* of the readable part,
    whatever `positions` says (positions only turn the rotary embedding). Each lane has at least one
    row, and every token id is a legal one.

    Lanes in `masked` attend what is said there instead: for them `kv_lens` and `page_table` say
    nothing (they must be legal all the same: at least one slot a row). Their rows are placed and
    written as all others are, in the whole batch before any row reads. Cheapest as the last lanes.
    """

    token_ids: Tensor  # int64 [R]
    positions: Tensor  # int64 [R]
    slot_mapping: Tensor  # int64 [R]: page * page_size + offset; -1 writes nowhere
    query_indptr: Tensor  # int32 [L + 1]
    kv_lens: Tensor  # int32 [L]: readable length after this batch's writes
    page_table: Tensor  # int32 [L, P]: entries past a lane's last page are 0
    readout_rows: Tensor  # int64 [K]: rows whose hidden state is returned; K may be 0
    query_indptr_host: Tensor  # int32 [L + 1], on the host
    num_rows: int
    num_lanes: int
    max_query_len: int
    max_kv_len: int
    masked: Sequence[MaskedLane] = ()  # each lane once at most


class Model(Protocol):
    """A loaded model with KV pages of its own. Page 0 is never handed out: vLLM's null block."""

    info: ModelInfo
    page_size: int  # slots a page
    device: torch.device
    #: Why this model cannot take masked lanes; None: it can. `forward` raises ValueError otherwise.
    mask_refusal: str | None

    def page_bytes(self) -> int:
        """Bytes that one page takes over all layers."""
        ...

    def allocate(self, num_pages: int) -> None:
        """Makes pages 0 … num_pages - 1, once, before the first forward.

        On the CPU a page takes memory when it is first written, not before.
        """
        ...

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """Copies whole pages, (source, destination), in every layer.

        All sources are read before any destination is written; no page is twice a destination.
        """
        ...

    def save_pages(self, pages: Sequence[int]) -> list[Tensor]:
        """What these pages hold, copied to host memory: tensors `[len(pages), …]`."""
        ...

    def load_pages(self, pages: Sequence[int], saved: Sequence[Tensor]) -> None:
        """Makes these pages hold what `save_pages` gave for as many pages."""
        ...

    def clear_pages(self, pages: Sequence[int]) -> None:
        """Forgets what earlier owners wrote to these pages; called when they get a new one.

        Otherwise their NaN or infinity would reach him: kernels read a lane's last page to its end,
        and multiply what lies past the lane's own by zero.
        """
        ...

    def forward(self, batch: Batch) -> Tensor:
        """Writes the batch's KV and returns the hidden states of its readout rows, `[K, width]`."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """The output head: `[K, width]` -> f32 `[K, output_vocab_size]`."""
        ...
