"""The model of `pie check`: random, but it comes to an end, as models do.

A grammar lets a random model write digits and spaces for ever, and none of its texts is ever
complete. After some tokens of one sequence this one prefers what ends a reply, then a text (within
which all else is legal), then a bracket, then a value; blanks and digits come last.
"""

from collections.abc import Collection

import numpy as np

from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing.fake_worker import Array, SeededModel

FREE_TOKENS = 12  # of each sequence, that are random alone
STEP = 20.0  # between two classes: more than random logits differ
_CLASSES = ("0123456789 \t\r\n", "", ",:;", ">)}]", "\"'`")  # by which tokens end a text; later is more


class EndingModel:
    """Logits as a function of the tokens, and of which of their beginnings it was asked before."""

    def __init__(self, vocab_size: int, vocabulary: Vocabulary) -> None:
        self._random = SeededModel(vocab_size)
        self._bias = np.zeros(vocab_size, np.float32)
        self._lengths: dict[int, int] = {}  # hash of a sequence -> tokens that it was given here
        for token in range(vocab_size):
            self._bias[token] = STEP * _class_of(vocabulary.token_bytes(token) or b"")

    def prefer(self, stops: Collection[int]) -> None:
        """`stops`: tokens that end a reply."""
        self._bias[list(stops)] = STEP * len(_CLASSES)

    def __call__(self, tokens: list[int]) -> Array:
        length = self._lengths.get(hash(tuple(tokens[:-1])), -1) + 1
        self._lengths[hash(tuple(tokens))] = length
        logits = self._random(tokens)
        return logits + self._bias if length >= FREE_TOKENS else logits


def _class_of(text: bytes) -> int:
    """How much a token ends what was begun: the place of the least of its characters."""
    found = [_class_of_character(character) for character in text.decode(errors="replace")]
    return min(found, default=_CLASSES.index(""))


def _class_of_character(character: str) -> int:
    for rank, characters in enumerate(_CLASSES):
        if character in characters:
            return rank
    return _CLASSES.index("")
