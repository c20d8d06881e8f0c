"""Penalties. Repetition: Keskar et al., "CTRL: A Conditional Transformer Language Model for
Controllable Generation" (2019). Presence and frequency: OpenAI's API reference (2020)."""

import numpy as np

from inferlet import *


def make(vocab, repetition=1.3, presence=0.4, frequency=0.05):
    counts = Channel.from_(np.zeros(vocab, np.float32))

    def choose(logits, state):
        seen = counts.take()
        scaled = select(logits > 0, logits / repetition, logits * repetition)
        logits = select(seen > 0, scaled - presence, logits) - seen * frequency
        token = gumbel_max(logits, state)
        counts.put(scatter_add(seen, token.reshape(1), 1.0))
        return token

    return choose
