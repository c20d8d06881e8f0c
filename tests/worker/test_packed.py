"""Masked lanes of one row become plain ones that have just the slots that the row sees."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.model.base import Batch, MaskedLane
from worker.model.packed import pack

SIZE, SCRATCH = 4, range(100, 106)

lanes = st.lists(
    st.tuples(
        st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True),  # pages
        st.lists(st.booleans(), min_size=1, max_size=24),  # what the row sees
        st.integers(1, 2),  # rows
    ),
    min_size=1,
    max_size=4,
)


def batch_of(given: list) -> Batch:
    counts = [rows for *_, rows in given]
    indptr = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
    nothing = torch.zeros(int(indptr[-1]), dtype=torch.int64)
    masked = []
    for lane, (pages, seen, rows) in enumerate(given):
        visible = torch.tensor([seen[: len(pages) * SIZE]] * rows)
        masked.append(MaskedLane(lane, pages, visible))
    return Batch(
        nothing, nothing, nothing, indptr, torch.tensor(counts, dtype=torch.int32),
        torch.zeros(len(given), 1, dtype=torch.int32), nothing[:0], indptr, len(nothing),
        len(given), max(counts), max(counts), masked,
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(lanes)
def test_a_plain_lane_has_the_slots_that_its_row_saw(given):
    before = batch_of(given)
    batch, copies = pack(before, SIZE, SCRATCH)
    origin = {}
    if copies is not None:
        targets = copies.targets.tolist()
        assert len(set(targets)) == len(targets)
        assert {target // SIZE for target in targets} <= set(SCRATCH)
        origin = dict(zip(targets, copies.sources.tolist()))
    left = {lane.lane for lane in batch.masked}
    assert [lane for lane in before.masked if lane.lane in left] == batch.masked
    used = 0
    for lane, (pages, seen, rows) in enumerate(given):
        wanted = [
            pages[slot // SIZE] * SIZE + slot % SIZE
            for slot, is_seen in enumerate(seen[: len(pages) * SIZE])
            if is_seen
        ]
        if lane in left:
            assert rows > 1 or not wanted or used + 6 > len(SCRATCH)
            continue
        length, table = int(batch.kv_lens[lane]), batch.page_table[lane].tolist()
        held = [table[slot // SIZE] * SIZE + slot % SIZE for slot in range(length)]
        assert sorted(origin.get(slot, slot) for slot in held) == sorted(wanted)
        end = [table[-(-length // SIZE) - 1] * SIZE + offset for offset in range(SIZE)]
        # The kernel reads the last page to its end.
        assert {origin.get(slot, slot) for slot in end} <= set(wanted)
        used += sum(page in SCRATCH for page in table)
    assert batch.max_kv_len == max(batch.kv_lens.tolist())


def test_without_scratch_pages_only_whole_pages_are_taken():
    batch, copies = pack(batch_of([([5, 6], [True] * 8, 1), ([7], [True, False], 1)]), SIZE, [])
    assert copies is None and [lane.lane for lane in batch.masked] == [1]
    assert batch.kv_lens.tolist() == [8, 1] and batch.page_table[0].tolist() == [5, 6]
