"""Greenlist watermark: Kirchenbauer et al., "A Watermark for Large Language Models" (2023)."""

import numpy as np

from inferlet import *


def make(vocab, delta=2.0, share=0.5, key=15):
    last = Channel.from_([0])

    def choose(logits, state):
        seed = scatter_set(
            constant([key, 0], dtype.u32), constant([1]), cast(last.take(), dtype.u32)
        )
        is_green = rank_le(gumbel(seed, [vocab]), int(share * vocab))
        token = gumbel_max(logits + cast(is_green, dtype.f32) * delta, state)
        last.put(token)
        return token

    return choose


def detect(tokens, vocab, share=0.5, key=15):
    """How many standard deviations more tokens are green than without a watermark."""
    greens = sum(
        int(b in green_list(int(a), vocab, share, key)) for a, b in zip(tokens, tokens[1:])
    )
    number = len(tokens) - 1
    return (greens - share * number) / (number * share * (1 - share)) ** 0.5


def green_list(previous, vocab, share, key):
    """The tokens whose draws are the highest (contract, section 16)."""

    def mix(z):
        z = (z ^ z >> 27) * 0x3C79AC492BA7B653 % 2**64
        z = (z ^ z >> 33) * 0x1C69B3F74AC4AE35 % 2**64
        return z ^ z >> 27

    seed = mix(key << 32 | previous)
    draws = [mix((seed + 0x9E3779B97F4A7C15 * (j + 1)) % 2**64) >> 40 for j in range(vocab)]
    return set(np.argsort(draws)[::-1][: int(share * vocab)].tolist())
