"""Lanes of a wave -> the tensors of one forward, with one copy to the device for all of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worker.channels import to_device
from worker.model.base import Batch, MaskedLane

Patch = tuple[list[int], torch.Tensor]  # rows of the batch, their ids


@dataclass(slots=True)
class Seen:
    """What the rows of a lane attend: `visible[row, slot of these pages]`, on the host."""

    pages: Sequence[int]
    visible: torch.Tensor


@dataclass(slots=True)
class LaneRows:
    """Rows of one sequence: they take slots and positions `start`, `start + 1`, … unless they are
    given. Without `seen` each row attends all slots up to its own, the last of which is the end."""

    tokens: Sequence[int]
    start: int
    pages: array  # of the whole sequence
    positions: Sequence[int] | None = None
    slots: Sequence[int] | None = None  # given with the positions
    seen: Seen | None = None


def assemble(
    lanes: Sequence[LaneRows],
    readout_rows: Sequence[int],
    page_size: int,
    device: torch.device,
    patches: Sequence[Patch] = (),
) -> Batch:
    """The batch of these lanes, each with at least one row. `readout_rows` index its rows, and
    `patches` bring token ids that are on the device already."""
    counts = [len(lane.tokens) for lane in lanes]
    ends = [lane.start + count for lane, count in zip(lanes, counts)]
    width = max(-(-end // page_size) for end in ends)
    indptr = array("i", [0])
    for count in counts:
        indptr.append(indptr[-1] + count)
    num_rows, num_lanes = indptr[-1], len(lanes)
    host = array("i")
    for lane in lanes:
        host.extend(lane.tokens)
    host.extend(indptr)
    host.extend(ends)
    host.extend(readout_rows)
    for lane in lanes:
        row = lane.pages[:width]
        host.extend(row)
        host.frombytes(bytes(4 * (width - len(row))))
    sizes = [num_rows, num_lanes + 1, num_lanes, len(readout_rows), num_lanes * width]
    parts = _to_device(host, device).split(sizes)
    token_ids, query_indptr, kv_lens, readout, table = parts
    page_table = table.view(num_lanes, width)
    positions, slots = _place(query_indptr, kv_lens, page_table, num_rows, page_size)
    token_ids = token_ids.long()
    _place_given(lanes, indptr, positions, slots, page_size)
    for rows, ids in patches:
        token_ids.index_copy_(0, to_device(rows, device), ids.long())
    return Batch(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=slots,
        query_indptr=query_indptr,
        kv_lens=kv_lens,
        page_table=page_table,
        readout_rows=readout.long(),
        query_indptr_host=torch.frombuffer(indptr, dtype=torch.int32),
        num_rows=num_rows,
        num_lanes=num_lanes,
        max_query_len=max(counts),
        max_kv_len=max(ends),
        masked=[
            MaskedLane(number, lane.seen.pages, lane.seen.visible.to(device))
            for number, lane in enumerate(lanes)
            if lane.seen is not None
        ],
    )


def _place_given(
    lanes: Sequence[LaneRows],
    indptr: Sequence[int],
    positions: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """Overwrites positions and slots of the rows for which they are given."""
    rows, at, places = [], [], []
    for lane, start in zip(lanes, indptr):
        if lane.positions is not None:
            rows += range(start, start + len(lane.tokens))
            at += lane.positions
            places += [
                lane.pages[slot // page_size] * page_size + slot % page_size for slot in lane.slots
            ]
    if rows:
        index = to_device(rows, positions.device)
        positions.index_copy_(0, index, to_device(at, positions.device).to(positions.dtype))
        slots.index_copy_(0, index, to_device(places, slots.device).to(slots.dtype))


def _to_device(host: array, device: torch.device) -> torch.Tensor:
    packed = torch.frombuffer(host, dtype=torch.int32)
    if device.type == "cpu":
        return packed
    return packed.pin_memory().to(device, non_blocking=True)


def _place(
    indptr: torch.Tensor,  # [L + 1]
    kv_lens: torch.Tensor,  # [L]
    page_table: torch.Tensor,  # [L, P]
    num_rows: int,
    page_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and slots [R] of all rows: lane i ends at slot `kv_lens[i]`."""
    lanes = torch.arange(len(kv_lens), device=indptr.device)
    lane = torch.repeat_interleave(lanes, indptr.diff(), output_size=num_rows)
    rows = torch.arange(num_rows, device=indptr.device)
    positions = rows + (kv_lens - indptr[1:])[lane]
    pages = page_table[lane, positions // page_size].long()
    return positions, pages * page_size + positions % page_size
