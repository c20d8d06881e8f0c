"""Masked attention in plain torch: against a dense reference, and what it leaves undone."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from worker.model import masked
from worker.model.base import MaskedLane
from worker.model.masked import HeadShape, Slab

PAGE_SIZE, NUM_PAGES = 16, 80
CPU = torch.device("cpu")
SHAPES = [HeadShape(2, 3, 8, 8), HeadShape(1, 2, 16, 4), HeadShape(4, 1, 8, 8)]


class Pages:
    """Random K and V, `[pages, KV heads, slots, size]`. Page 0 is zero, as in models."""

    def __init__(self, shape: HeadShape, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        heads = (NUM_PAGES, shape.kv_heads, PAGE_SIZE)
        self.keys = torch.randn(*heads, shape.size, generator=generator)
        self.values = torch.randn(*heads, shape.value_size, generator=generator)
        self.keys[0], self.values[0] = 0, 0
        self.num_read = 0

    def read(self, slab: Slab) -> tuple[Tensor, Tensor]:
        self.num_read += len(slab.pages)
        keys, values = (
            kept[slab.pages].transpose(1, 2).flatten(2, 3).flatten(0, 1).clone()
            for kept in (self.keys, self.values)
        )
        return keys.transpose(1, 2).contiguous(), values


def expected(pages: Pages, shape: HeadShape, query: Tensor, lane: MaskedLane) -> Tensor:
    """Dense, slot by slot: `[rows, heads, value size]`."""
    chosen = list(lane.pages)
    keys = pages.keys[chosen].transpose(1, 2).flatten(0, 1).double()
    values = pages.values[chosen].transpose(1, 2).flatten(0, 1).double()
    rows = []
    for q, seen in zip(query.double(), lane.visible):
        slots = seen.nonzero().flatten()
        key, value = (x[slots].repeat_interleave(shape.group, 1) for x in (keys, values))
        weights = ((key * q).sum(-1) * 0.25).softmax(0)
        rows.append((weights[..., None] * value).sum(0))
    return torch.stack(rows).float()


def random_lane(rand: random.Random, lane: int, rows: int, seed: int) -> MaskedLane:
    pages = rand.sample(range(1, NUM_PAGES), rand.randint(1, 30))
    generator = torch.Generator().manual_seed(seed)
    width = len(pages) * PAGE_SIZE - rand.randint(0, PAGE_SIZE - 1)
    density = rand.choice([0.02, 0.5, 1.0])
    visible = torch.rand(rows, width, generator=generator) < density
    visible[rand.randrange(rows)] = False
    first = rand.randrange(width)
    visible[:, first : first + 200] = False
    return MaskedLane(lane, pages, visible)


def attend(
    pages: Pages, shape: HeadShape, query: Tensor, lanes: list[MaskedLane], indptr: list[int]
) -> Tensor:
    output = torch.full((len(query), query.shape[1], shape.value_size), 77.0)
    for slab in masked.plan(lanes, indptr, PAGE_SIZE, shape, CPU):
        masked.attend(slab, query, pages.read, 0.25, output)
    return output


def queries(rows: int, shape: HeadShape) -> Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, shape.kv_heads * shape.group, shape.size, generator=generator)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_random_masks_give_what_a_dense_reference_gives(shape: HeadShape, seed: int) -> None:
    rand, pages = random.Random(seed), Pages(shape)
    counts = [rand.choice([1, 1, 2, 5, 33, 64, 100]) for _ in range(5)]
    indptr = [sum(counts[:lane]) for lane in range(6)]
    query = queries(indptr[-1], shape)
    lanes = [random_lane(rand, lane, counts[lane], seed) for lane in (4, 0, 1, 3)]
    output = attend(pages, shape, query, lanes, indptr)
    for lane in lanes:
        rows = slice(indptr[lane.lane], indptr[lane.lane + 1])
        wanted = expected(pages, shape, query[rows], lane)
        assert (output[rows] - wanted).abs().max() < 1e-5
    # Lane 2 has no mask: its rows are left alone.
    assert (output[indptr[2] : indptr[3]] == 77).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slab_bytes", [1, 1 << 18, 1 << 30])
def test_a_lane_has_the_same_bits_alone_and_among_others(
    shape: HeadShape, slab_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked, "SLAB_BYTES", slab_bytes)
    rand, pages = random.Random(5), Pages(shape)
    counts = [1, 7, 1, 70, 1, 2]
    indptr = [sum(counts[:lane]) for lane in range(7)]
    query = queries(indptr[-1], shape)
    lanes = [random_lane(rand, lane, count, lane) for lane, count in enumerate(counts)]
    together = attend(pages, shape, query, lanes, indptr)
    for lane in lanes:
        alone = attend(pages, shape, query, [lane], indptr)
        rows = slice(indptr[lane.lane], indptr[lane.lane + 1])
        assert torch.equal(alone[rows], together[rows])


def test_a_row_has_the_same_bits_however_its_lane_is_cut() -> None:
    shape, num_rows = SHAPES[0], 90
    pages, query = Pages(shape), queries(num_rows, shape)
    lane = random_lane(random.Random(9), 0, num_rows, 9)
    whole = attend(pages, shape, query, [lane], [0, num_rows])
    for cut in (1, 13, 64):
        for first in range(0, num_rows, cut):
            rows = slice(first, min(num_rows, first + cut))
            part = MaskedLane(0, lane.pages, lane.visible[rows])
            output = attend(pages, shape, query[rows], [part], [0, rows.stop - first])
            assert torch.equal(output, whole[rows])


def test_a_row_that_attends_nothing_gets_zeros() -> None:
    shape = SHAPES[0]
    pages, query = Pages(shape), queries(3, shape)
    visible = torch.zeros(2, 40, dtype=torch.bool)
    visible[1, 3] = True
    lanes = [MaskedLane(0, [4, 5, 6], visible), MaskedLane(1, [], visible[:1, :0])]
    output = attend(pages, shape, query, lanes, [0, 2, 3])
    assert (output[[0, 2]] == 0).all()
    assert torch.allclose(output[1, :3], pages.values[4, 0, 3].expand(3, -1))


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_what_a_row_does_not_attend_never_reaches_it(poison: float) -> None:
    shape = SHAPES[0]
    clean, query = Pages(shape), queries(2, shape)
    visible = torch.ones(2, 2 * PAGE_SIZE, dtype=torch.bool)
    visible[0, 5] = False  # the other row sees it
    visible[:, 20] = False
    lane = MaskedLane(0, [3, 8], visible)
    wanted = attend(clean, shape, query, [lane], [0, 2])
    poisoned = Pages(shape)
    for kept in (poisoned.keys, poisoned.values):
        kept[3, :, 5], kept[8, :, 4] = poison, poison
    output = attend(poisoned, shape, query, [lane], [0, 2])
    assert torch.equal(output[0], wanted[0])
    assert not torch.equal(output[1], wanted[1])


def test_chunks_that_no_row_sees_are_not_read() -> None:
    shape, num_pages = SHAPES[0], 512
    visible = torch.zeros(1, num_pages * PAGE_SIZE, dtype=torch.bool)
    visible[0, :4] = True  # a sink
    visible[0, -100:] = True  # a window
    lane = MaskedLane(0, [1 + page % 79 for page in range(num_pages)], visible)
    pages = Pages(shape)
    attend(pages, shape, queries(1, shape), [lane], [0, 1])
    assert pages.num_read == 2  # of 64


def test_working_memory_stays_bounded_for_many_rows_over_a_long_context() -> None:
    shape, rows, num_pages = HeadShape(8, 4, 128, 128), 300, 2048
    lane = MaskedLane(0, [1] * num_pages, torch.ones(rows, num_pages * PAGE_SIZE, dtype=torch.bool))
    slabs = masked.plan([lane], [0, rows], PAGE_SIZE, shape, CPU)
    assert sum(len(slab.rows) for slab in slabs) == rows
    dense = 4 * rows * 32 * num_pages * PAGE_SIZE
    for slab in slabs:
        taken = len(slab.pages) * shape.chunk_bytes(slab.tile_rows, masked.CHUNK_SLOTS)
        assert taken <= masked.SLAB_BYTES or slab.num_tiles == 1
        assert taken < dense / 2
