"""Lanes of a wave -> the tensors of one forward, with one copy to the device for all of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
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


class Appended(Protocol):
    """A sequence that gets one row, at its end."""

    length: int  # without it
    pages: array


def assemble(
    lanes: Sequence[LaneRows],
    readout_rows: Sequence[int],
    page_size: int,
    device: torch.device,
    patches: Sequence[Patch] = (),
    singles: Sequence[Appended] = (),
    single_ids: Sequence[int] = (),
) -> Batch:
    """The batch of these lanes, each with at least one row; `singles` come before them, with one
    row each. `readout_rows` index its rows, and `patches` bring token ids that are on the device
    already."""
    first = len(singles)
    ends = [held.length + 1 for held in singles]
    ends += [lane.start + len(lane.tokens) for lane in lanes]
    kv_lens = np.array(ends, np.int32)
    counts = np.ones(len(ends), np.int32)
    counts[first:] = [len(lane.tokens) for lane in lanes]
    indptr = np.zeros(len(ends) + 1, np.int32)
    np.cumsum(counts, out=indptr[1:])
    tables = chain((held.pages for held in singles), (lane.pages for lane in lanes))
    page_table = _page_table(tables, -(-max(ends) // page_size))
    ids = array("q", single_ids)
    for lane in lanes:
        ids.extend(lane.tokens)
    positions, slots = _place(counts, indptr, kv_lens, page_table, page_size)
    _place_given(lanes, indptr[first:], positions, slots, page_size)
    readout = np.array(readout_rows, np.int64)
    host = (np.frombuffer(ids, np.int64), positions, slots, readout, indptr, kv_lens, page_table)
    token_ids, *rest = _to_device(host, device)
    for rows, patch in patches:
        token_ids.index_copy_(0, to_device(rows, device), patch.long())
    return Batch(
        token_ids,
        *rest[:2],
        query_indptr=rest[3],
        kv_lens=rest[4],
        page_table=rest[5],
        readout_rows=rest[2],
        query_indptr_host=torch.from_numpy(indptr),
        num_rows=len(ids),
        num_lanes=len(ends),
        max_query_len=int(counts.max()),
        max_kv_len=max(ends),
        masked=[
            MaskedLane(number, lane.seen.pages, lane.seen.visible.to(device))
            for number, lane in enumerate(lanes, first)
            if lane.seen is not None
        ],
    )


def _page_table(tables: Iterable[array], width: int) -> np.ndarray:
    """`[lanes, width]`, filled up with zeros."""
    flat, zeros = array("i"), bytes(4 * width)
    for pages in tables:
        missing = width - len(pages)
        if missing >= 0:
            flat.extend(pages)
            flat.frombytes(zeros[: 4 * missing])
        else:
            flat.extend(pages[:width])
    return np.frombuffer(flat, np.int32).reshape(-1, width)


def _place(
    counts: np.ndarray,  # [L]
    indptr: np.ndarray,  # [L + 1]
    kv_lens: np.ndarray,  # [L]
    page_table: np.ndarray,  # [L, P]
    page_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and slots [R] of all rows: lane i ends at slot `kv_lens[i]`."""
    lane = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(indptr[-1], dtype=np.int64) + (kv_lens - indptr[1:])[lane]
    pages = page_table[lane, positions // page_size].astype(np.int64)
    return positions, pages * page_size + positions % page_size


def _place_given(
    lanes: Sequence[LaneRows],
    indptr: Sequence[int],
    positions: np.ndarray,
    slots: np.ndarray,
    page_size: int,
) -> None:
    """Overwrites positions and slots of the rows for which they are given."""
    for lane, start in zip(lanes, indptr):
        if lane.positions is not None:
            rows = slice(start, start + len(lane.tokens))
            positions[rows] = lane.positions
            pages, at = np.frombuffer(lane.pages, np.int32), np.array(lane.slots)
            slots[rows] = pages[at // page_size].astype(np.int64) * page_size + at % page_size


def _to_device(parts: Sequence[np.ndarray], device: torch.device) -> list[torch.Tensor]:
    """All of them with one copy."""
    if device.type == "cpu":
        return [torch.from_numpy(part) for part in parts]
    return unpack(pack(parts).pin_memory().to(device, non_blocking=True), parts)


def pack(parts: Sequence[np.ndarray]) -> torch.Tensor:
    """One buffer of bytes. Elements must not become larger: so each part lies where it may."""
    return torch.from_numpy(np.concatenate([part.reshape(-1).view(np.uint8) for part in parts]))


def unpack(packed: torch.Tensor, like: Sequence[np.ndarray]) -> list[torch.Tensor]:
    """Views of a packed buffer, with the dtypes and shapes of these arrays."""
    split = packed.split([part.nbytes for part in like])
    return [
        data.view(torch.from_numpy(part).dtype).view(part.shape)
        for data, part in zip(split, like, strict=True)
    ]
