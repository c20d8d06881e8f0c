"""The tensors of one forward, from lanes of every kind."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from worker.batch import LaneRows, assemble, pack, unpack

PAGE_SIZE = 4
CPU = torch.device("cpu")


@dataclass
class Held:
    length: int
    pages: array


def test_singles_come_first_with_their_next_slot() -> None:
    singles = [Held(3, array("i", [5])), Held(4, array("i", [6, 7]))]
    lane = LaneRows([30, 31, 32], 2, array("i", [8, 9]))
    batch = assemble([lane], [0, 1, 4], PAGE_SIZE, CPU, (), singles, [10, 20])
    assert batch.token_ids.tolist() == [10, 20, 30, 31, 32]
    assert batch.positions.tolist() == [3, 4, 2, 3, 4]
    assert batch.slot_mapping.tolist() == [5 * 4 + 3, 7 * 4, 8 * 4 + 2, 8 * 4 + 3, 9 * 4]
    assert batch.query_indptr.tolist() == batch.query_indptr_host.tolist() == [0, 1, 2, 5]
    assert batch.kv_lens.tolist() == [4, 5, 5]
    assert batch.page_table.tolist() == [[5, 0], [6, 7], [8, 9]]
    assert batch.readout_rows.tolist() == [0, 1, 4]
    assert (batch.num_rows, batch.num_lanes, batch.max_query_len, batch.max_kv_len) == (5, 3, 3, 5)


def test_given_places_go_where_they_say() -> None:
    lane = LaneRows([1, 2, 3], 0, array("i", [3, 1]), positions=[7, 8, 9], slots=[6, 1, 4])
    batch = assemble([lane], [], PAGE_SIZE, CPU, (), [Held(0, array("i", [2]))], [9])
    assert batch.positions.tolist() == [0, 7, 8, 9]
    assert batch.slot_mapping.tolist() == [2 * 4, 1 * 4 + 2, 3 * 4 + 1, 1 * 4]


def test_a_table_has_no_more_pages_than_the_longest_lane_reads() -> None:
    lane = LaneRows([1], 3, array("i", [3, 4, 5, 6]))  # room that it does not use yet
    batch = assemble([lane], [0], PAGE_SIZE, CPU)
    assert batch.page_table.tolist() == [[3]]


def test_patches_replace_ids_that_the_host_does_not_know() -> None:
    singles = [Held(0, array("i", [1])), Held(0, array("i", [2]))]
    ids = torch.tensor([41, 42], dtype=torch.int32)
    batch = assemble([], [0, 1], PAGE_SIZE, CPU, [([0, 1], ids)], singles, [0, 0])
    assert batch.token_ids.tolist() == [41, 42]


@pytest.mark.parametrize("rows", range(1, 6))
def test_what_is_packed_for_one_copy_comes_out_as_it_was(rows: int) -> None:
    wide = [np.arange(rows, dtype=np.int64) << 33, np.full(rows + 1, -1, np.int64)]
    narrow = [np.arange(rows + 1, dtype=np.int32), np.arange(3 * rows, dtype=np.int32)]
    parts = [*wide, narrow[0], narrow[1].reshape(rows, 3), np.zeros(0, np.int32)]
    for tensor, part in zip(unpack(pack(parts), parts), parts, strict=True):
        assert tensor.dtype == torch.from_numpy(part).dtype
        assert tensor.tolist() == part.tolist()
