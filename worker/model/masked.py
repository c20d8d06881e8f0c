"""Attention of rows whose visible slots are given one by one: which pages to read, and the reading.

Owns the arithmetic, in plain torch. Where K and V lie in a page is the caller's business, and so is
who may see what. One plan serves all layers of a forward.

    row    [H * G heads, D]                   queries of one KV head: G neighbouring heads
    tile   r neighbouring rows of a lane      r is a power of two; the last tile is padded
    chunk  neighbouring pages, 128 slots      skipped if no row of the tile attends a slot of it
    slab   tiles with equal r and their chunks, as many as fit into SLAB_BYTES: one call

A row's sum goes chunk by chunk in the order of its lane's pages, and the grid of chunks starts at
the first page. So its bits depend neither on other lanes nor on how the lane's rows are cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from worker.model.base import Batch, MaskedLane

CHUNK_SLOTS = 128
MAX_TILE_ROWS = 64
#: Rows times chunks of one tile: longer contexts get smaller tiles.
MAX_TILE_AREA = 4096
SLAB_BYTES = 16 << 20

#: A slab -> K `[C * H, D, slots a chunk]` and V `[C * H, slots a chunk, D]` of its chunks in f32.
#: Both are written to, so they must be copies.
ReadChunks = Callable[["Slab"], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a layer's attention looks like."""

    kv_heads: int  # H
    group: int  # G: query heads that share a KV head
    size: int  # D of queries and keys
    value_size: int

    def chunk_bytes(self, tile_rows: int, slots: int) -> int:
        """Working memory of one chunk: its K and V, and the scores and results of one tile."""
        rows = tile_rows * self.group * (slots + self.value_size + self.size)
        return 4 * self.kv_heads * (slots * (self.size + self.value_size) + rows)


@dataclass(slots=True)
class Slab:
    """T tiles of r rows, and the C chunks that they read, sorted by tile."""

    tile_rows: int  # r
    num_tiles: int  # T
    rows: Tensor  # int64 [written rows]: where in the batch the results go
    written: Tensor | None  # int64 [written rows]: which of the T * r rows; None: all, in order
    query_rows: Tensor  # int64 [C * r]: rows of the batch that read chunk c
    tile_of: Tensor | None  # int64 [C]; None: chunk c is all that tile c reads
    pages: Tensor  # int64 [C, pages a chunk]: filled up with page 0
    hidden: Tensor  # bool [C, 1, r, 1, slots a chunk]
    # Both are made in the first layer and used in all.
    indices: dict[object, tuple[Tensor, Tensor]] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def buffer(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Memory that lasts as long as the plan: fresh memory costs more than filling it."""
        found = self.buffers.get(name)
        if found is None or found.shape != shape:
            found = self.buffers[name] = like.new_empty(shape)
        return found


@dataclass(slots=True)
class _Tiles:
    """The tiles of one lane."""

    first_row: int
    num_rows: int
    counts: list[int]  # chunks that each tile reads
    pages: Tensor  # [C, pages a chunk]
    hidden: Tensor  # [C, r, slots a chunk]


def plan(
    lanes: Sequence[MaskedLane],
    indptr: Sequence[int],
    page_size: int,
    shape: HeadShape,
    device: torch.device,
) -> list[Slab]:
    """Lays out the masked lanes of a batch with these row boundaries, for layers up to `shape`."""
    by_rows: dict[int, list[_Tiles]] = {}
    for lane in lanes:
        first, end = indptr[lane.lane], indptr[lane.lane + 1]
        tile_rows, tiles = _tiles(lane, first, end - first, page_size, shape, device)
        by_rows.setdefault(tile_rows, []).append(tiles)
    slots = _pages_per_chunk(page_size) * page_size
    return [
        slab
        for tile_rows, group in by_rows.items()
        for slab in _slabs(tile_rows, group, shape.chunk_bytes(tile_rows, slots), device)
    ]


def plain_part(batch: Batch) -> Batch | None:
    """What is left for a causal kernel, which must not spend time on masked lanes: None is nothing.

    Masked lanes at the end are left out. Others cannot be, since the rows of lanes lie side by side:
    they read as little as there are rows, and what they get is overwritten.
    """
    if not batch.masked:
        return batch
    masked = {lane.lane for lane in batch.masked}
    num_lanes = batch.num_lanes
    while num_lanes - 1 in masked:
        num_lanes -= 1
    if num_lanes == 0:
        return None
    indptr, kv_lens = batch.query_indptr_host[: num_lanes + 1], batch.kv_lens[:num_lanes]
    inner = sorted(lane for lane in masked if lane < num_lanes)
    if inner:
        index = torch.tensor(inner).to(kv_lens.device, non_blocking=True)
        kv_lens = kv_lens.index_copy(0, index, batch.query_indptr.diff()[index])
    num_rows = int(indptr[-1])
    return replace(
        batch,
        positions=batch.positions[:num_rows],
        query_indptr=batch.query_indptr[: num_lanes + 1],
        query_indptr_host=indptr,
        kv_lens=kv_lens,
        page_table=batch.page_table[:num_lanes],
        num_rows=num_rows,
        num_lanes=num_lanes,
        max_query_len=int(indptr.diff().max()),
    )


def attend(slab: Slab, query: Tensor, read: ReadChunks, scale: float, output: Tensor) -> None:
    """Writes the slab's rows of `output`, `[rows, heads, value size]`; `query` is alike."""
    num_chunks, r = len(slab.pages), slab.tile_rows
    if num_chunks == 0:
        output.index_fill_(0, slab.rows, 0)
        return
    keys, values = read(slab)
    kv_heads, slots = len(keys) // num_chunks, keys.shape[-1]
    queries = _fold(query.index_select(0, slab.query_rows).float(), r, kv_heads)
    scores = slab.buffer("scores", (*queries.shape[:2], slots), keys)
    torch.baddbmm(scores, queries, keys, beta=0, alpha=scale, out=scores)
    scores.view(num_chunks, kv_heads, r, -1, slots).masked_fill_(slab.hidden, -torch.inf)
    peaks = _highest(slab, scores.amax(-1).view(num_chunks, -1))
    scores.sub_(peaks.view(*queries.shape[:2], 1)).exp_()
    # What no row attends may be anything: times zero it must be zero.
    values.nan_to_num_()
    # The highest score adds 1 to its row's sum: only the sum of a row that attends nothing is lower.
    sums = _per_tile(slab, scores.sum(-1).view(num_chunks, -1)).clamp_(min=1)
    results = _per_tile(slab, torch.bmm(scores, values).view(num_chunks, -1))
    results = results.view(*sums.shape, -1).div_(sums.unsqueeze(-1))
    output.index_copy_(0, slab.rows, _unfold(slab, results, kv_heads).to(output.dtype))


def _fold(queries: Tensor, r: int, kv_heads: int) -> Tensor:
    """`[C * r, H * G, D]` -> `[C * H, r * G, D]`."""
    size, group = queries.shape[-1], queries.shape[1] // kv_heads
    folded = queries.view(-1, r, kv_heads, group, size).transpose(1, 2)
    return folded.reshape(-1, r * group, size)


def _unfold(slab: Slab, results: Tensor, kv_heads: int) -> Tensor:
    """`[T, H * r * G, D]` -> `[written rows, H * G, D]`."""
    num_tiles, r, size = slab.num_tiles, slab.tile_rows, results.shape[-1]
    rows = results.view(num_tiles, kv_heads, r, -1, size).transpose(1, 2)
    rows = rows.reshape(num_tiles * r, -1, size)
    return rows if slab.written is None else rows.index_select(0, slab.written)


def _highest(slab: Slab, peaks: Tensor) -> Tensor:
    """Per chunk the highest score of its tile, `[C, H * r * G]`; finite where nothing is seen."""
    if slab.tile_of is not None:
        index = slab.tile_of.unsqueeze(-1).expand_as(peaks)
        highest = peaks.new_full((slab.num_tiles, peaks.shape[1]), -torch.inf)
        peaks = highest.scatter_reduce_(0, index, peaks, "amax").index_select(0, slab.tile_of)
    return peaks.clamp_(min=torch.finfo(peaks.dtype).min)


def _per_tile(slab: Slab, parts: Tensor) -> Tensor:
    """Adds the chunks of every tile, in order: `[C, X]` -> `[T, X]`."""
    if slab.tile_of is None:
        return parts
    return parts.new_zeros(slab.num_tiles, parts.shape[1]).index_add_(0, slab.tile_of, parts)


def _pages_per_chunk(page_size: int) -> int:
    return max(1, CHUNK_SLOTS // page_size)


def _tile_rows(num_rows: int, num_chunks: int, shape: HeadShape) -> int:
    rows = min(MAX_TILE_ROWS, 1 << (num_rows - 1).bit_length())
    while rows > 1 and rows * num_chunks > MAX_TILE_AREA:
        rows //= 2
    # Matrices of fewer than 4 rows, and a single one of fewer than 8, are summed in another order.
    least = 4 if shape.kv_heads > 1 else 8
    while rows * shape.group < least:
        rows *= 2
    return rows


def _tiles(
    lane: MaskedLane,
    first_row: int,
    num_rows: int,
    page_size: int,
    shape: HeadShape,
    device: torch.device,
) -> tuple[int, _Tiles]:
    """The number of rows in each tile of the lane, and the tiles."""
    width = _pages_per_chunk(page_size)
    num_chunks, slots = -(-len(lane.pages) // width), width * page_size
    r = _tile_rows(num_rows, num_chunks, shape)
    num_tiles = -(-num_rows // r)
    visible = lane.visible.to(device, non_blocking=True)
    if visible.shape != (num_tiles * r, num_chunks * slots):
        padded = visible.new_zeros(num_tiles * r, num_chunks * slots)
        padded[:num_rows, : visible.shape[1]] = visible
        visible = padded
    blocks = visible.view(num_tiles, r, num_chunks, slots).transpose(1, 2)
    padding = [0] * (num_chunks * width - len(lane.pages))
    pages = torch.tensor([*lane.pages, *padding], dtype=torch.int64).view(num_chunks, width)
    if device.type == "cpu":
        seen = blocks.flatten(2).any(-1)
        tile, chunk = seen.nonzero(as_tuple=True)
        counts = seen.sum(1).tolist()
        return r, _Tiles(first_row, num_rows, counts, pages[chunk], ~blocks[tile, chunk])
    # Which chunks are seen only the device knows, and nobody may wait for it: reads them all.
    pages = pages.to(device, non_blocking=True).repeat(num_tiles, 1)
    hidden = ~blocks.reshape(num_tiles * num_chunks, r, slots)
    return r, _Tiles(first_row, num_rows, [num_chunks] * num_tiles, pages, hidden)


def _slabs(
    tile_rows: int, group: list[_Tiles], chunk_bytes: int, device: torch.device
) -> Iterator[Slab]:
    """Cuts the tiles of all lanes, one after the other, into slabs. A tile is never cut."""
    pages = torch.cat([tiles.pages for tiles in group])
    hidden = torch.cat([tiles.hidden for tiles in group])
    counts = [count for tiles in group for count in tiles.counts]
    rows = [row for tiles in group for row in _rows(tiles, tile_rows)]  # one list a tile
    chunk = 0
    for first, end in _cuts(counts, SLAB_BYTES // chunk_bytes):
        num_chunks = sum(counts[first:end])
        kept = slice(chunk, chunk + num_chunks)
        yield _slab(counts[first:end], rows[first:end], pages[kept], hidden[kept], device)
        chunk += num_chunks


def _rows(tiles: _Tiles, tile_rows: int) -> Iterator[list[int]]:
    """Rows of the batch in each tile; the last tile may have fewer."""
    end = tiles.first_row + tiles.num_rows
    for first in range(tiles.first_row, end, tile_rows):
        yield list(range(first, min(first + tile_rows, end)))


def _cuts(counts: list[int], limit: int) -> Iterator[tuple[int, int]]:
    """`[first, end)` of neighbouring tiles with at most `limit` chunks together, or one tile."""
    first = chunks = 0
    for tile, count in enumerate(counts):
        if tile > first and chunks + count > limit:
            yield first, tile
            first, chunks = tile, 0
        chunks += count
    yield first, len(counts)


def _slab(
    counts: list[int], rows: list[list[int]], pages: Tensor, hidden: Tensor, device: torch.device
) -> Slab:
    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)

    r = hidden.shape[1]
    full = [tile + tile[-1:] * (r - len(tile)) for tile in rows]
    tile_of = [tile for tile, count in enumerate(counts) for _ in range(count)]
    is_padded = any(len(tile) < r for tile in rows)
    written = [tile * r + row for tile, kept in enumerate(rows) for row in range(len(kept))]
    return Slab(
        tile_rows=r,
        num_tiles=len(counts),
        rows=tensor(list(itertools.chain.from_iterable(rows))),
        written=tensor(written) if is_padded else None,
        query_rows=tensor([row for tile in tile_of for row in full[tile]]),
        tile_of=None if all(count == 1 for count in counts) else tensor(tile_of),
        pages=pages,
        hidden=hidden[:, None, :, None],
    )
