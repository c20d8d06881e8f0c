"""Packed token masks: bit `j & 31` of word `j >> 5` is token `j`."""

from collections.abc import Sequence

import numpy as np

from inferlet.runtime.cells import integers

__all__ = ["unpack_mask"]

_WORD = 32
MAX_VOCAB = 1 << 24  # beyond any vocabulary


def unpack_mask(packed: Sequence[int], vocab: int) -> list[bool]:
    """`vocab` truth values. No words mean no constraint; bits beyond the words are False."""
    if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 0:
        raise ValueError(f"`mask.unpack_mask` got vocab {vocab!r}; it takes an int >= 0")
    if vocab > MAX_VOCAB:
        raise ValueError(f"`mask.unpack_mask` got vocab {vocab}; at most {MAX_VOCAB}")
    words = integers(packed, "`packed`")
    if not words:
        return [True] * vocab
    if min(words) < 0 or max(words) >> _WORD:
        wrong = next(word for word in words if word < 0 or word >> _WORD)
        raise ValueError(f"`packed` holds {wrong}, which is no unsigned 32-bit word")
    array = np.array(words[: -(-vocab // _WORD)], dtype="<u4")
    bits = np.unpackbits(array.view(np.uint8), bitorder="little")[:vocab].astype(bool)
    return bits.tolist() + [False] * (vocab - len(bits))
