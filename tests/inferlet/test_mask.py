"""`mask.unpack_mask` (contract, 6.3)."""

import numpy as np
import pytest

from inferlet import mask


def test_a_bit_is_a_token():
    found = mask.unpack_mask([5], 34)
    assert len(found) == 34 and [i for i, bit in enumerate(found) if bit] == [0, 2]
    assert all(type(bit) is bool for bit in found)


def test_words_follow_each_other_and_surplus_bits_are_left_out():
    packed = [0x8000_0000, 1, 0xFFFF_FFFF]
    assert [i for i, bit in enumerate(mask.unpack_mask(packed, 64)) if bit] == [31, 32]
    assert mask.unpack_mask([0xFFFF_FFFF], 3) == [True] * 3


def test_no_words_mean_no_constraint():
    assert mask.unpack_mask([], 5) == [True] * 5
    assert mask.unpack_mask([], 0) == mask.unpack_mask([1], 0) == []


def test_arrays_of_words_fit():
    assert mask.unpack_mask(np.array([2], np.uint32), 2) == [False, True]


@pytest.mark.parametrize(
    ("packed", "vocab"), [([-1], 3), ([2**32], 3), ([1], -1), ([1], True), ([5], 10**10)]
)
def test_what_is_no_word_or_width_is_refused(packed, vocab):
    with pytest.raises(ValueError):
        mask.unpack_mask(packed, vocab)
