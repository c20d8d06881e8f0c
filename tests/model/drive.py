"""Drives a `Model` by hand in tests and benchmarks: pages for lanes, batches from token lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from worker.model.base import Batch, MaskedLane, Model


@dataclass
class Lane:
    """One sequence: its pages, and how many of their slots are readable."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class Driver:
    def __init__(self, model: Model, num_pages: int) -> None:
        self.model = model
        model.allocate(num_pages)
        self._free = list(range(num_pages - 1, 0, -1))

    def release(self, lane: Lane) -> None:
        self._free += lane.pages
        lane.pages, lane.length = [], 0

    def fork(self, lane: Lane) -> Lane:
        """A second lane with copies of all pages."""
        copies = [self._free.pop() for _ in lane.pages]
        self.model.copy_pages(list(zip(lane.pages, copies)))
        return Lane(copies, lane.length)

    def step(
        self, work: list[tuple[Lane, list[int]]], *, write: bool = True, readout: bool = True
    ) -> Tensor:
        """One forward of (lane, new tokens); gives the logits of every lane's last row."""
        batch = self.batch(work, write=write, readout=readout)
        return self.model.logits(self.model.forward(batch))

    def step_masked(
        self, work: list[tuple[Lane, list[int]]], masks: dict[int, Tensor], *, write: bool = True
    ) -> Tensor:
        """One forward in which some lanes have masks `[rows, K]` over their own slots; gives the
        logits of every row."""
        for lane, tokens in work:
            self.grow(lane, lane.length + len(tokens))
        masked = [MaskedLane(lane, work[lane][0].pages, mask) for lane, mask in masks.items()]
        return self.every_row(work, masked, write=write)

    def every_row(
        self,
        work: list[tuple[Lane, list[int]]],
        masked: Sequence[MaskedLane],
        *,
        write: bool = True,
    ) -> Tensor:
        """One forward; gives the logits of every row."""
        batch = self.batch(work, write=write)
        batch.masked = masked
        batch.readout_rows = torch.arange(batch.num_rows, device=self.model.device)
        return self.model.logits(self.model.forward(batch))

    def batch(
        self, work: list[tuple[Lane, list[int]]], *, write: bool = True, readout: bool = True
    ) -> Batch:
        positions, slots, lengths, indptr = [], [], [], [0]
        for lane, tokens in work:
            end = lane.length + len(tokens)
            self.grow(lane, end)
            positions += range(lane.length, end)
            slots += [self._slot(lane, p) if write else -1 for p in range(lane.length, end)]
            lengths.append(end)
            indptr.append(len(positions))
            lane.length = end if write else lane.length
        width = max(len(lane.pages) for lane, _ in work)
        table = [lane.pages + [0] * (width - len(lane.pages)) for lane, _ in work]
        last_rows = [end - 1 for end in indptr[1:]] if readout else []
        tokens = [token for _, lane_tokens in work for token in lane_tokens]
        return Batch(
            token_ids=self._tensor(tokens, torch.int64),
            positions=self._tensor(positions, torch.int64),
            slot_mapping=self._tensor(slots, torch.int64),
            query_indptr=self._tensor(indptr, torch.int32),
            kv_lens=self._tensor(lengths, torch.int32),
            page_table=self._tensor(table, torch.int32),
            readout_rows=self._tensor(last_rows, torch.int64),
            query_indptr_host=torch.tensor(indptr, dtype=torch.int32),
            num_rows=len(tokens),
            num_lanes=len(work),
            max_query_len=max(len(lane_tokens) for _, lane_tokens in work),
            max_kv_len=max(lengths),
        )

    def greedy(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Prefills all prompts in one batch, then decodes them together."""
        lanes = [Lane() for _ in prompts]
        results: list[list[int]] = [[] for _ in prompts]
        work = list(zip(lanes, prompts))
        for _ in range(num_tokens):
            chosen = self.step(work).argmax(-1).tolist()
            for tokens, token in zip(results, chosen):
                tokens.append(token)
            work = [(lane, [token]) for lane, token in zip(lanes, chosen)]
        for lane in lanes:
            self.release(lane)
        return results

    def grow(self, lane: Lane, end: int) -> None:
        while len(lane.pages) * self.model.page_size < end:
            lane.pages.append(self._free.pop())

    def _slot(self, lane: Lane, position: int) -> int:
        page, offset = divmod(position, self.model.page_size)
        return lane.pages[page] * self.model.page_size + offset

    def _tensor(self, values: list, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.model.device)
