"""DRY: p-e-w, "DRY: A modern repetition penalty that reliably prevents looping"
(text-generation-webui, 2024): a token that would prolong a repeated sequence loses
`multiplier * base ** (length - allowed)`."""

import math

import numpy as np

from inferlet import *

WINDOW, LONGEST = 24, 8


def make(vocab, multiplier=0.8, base=1.75, allowed=2):
    history = Channel.from_(np.full(WINDOW, -1, np.int32))  # the newest token is last
    lag, back = np.ogrid[1:WINDOW, 0:LONGEST]
    place = WINDOW - 1 - back - lag  # of the token `back` before the end, `lag` earlier

    def choose(logits, state):
        past = history.take()
        newest = gather(past, constant(WINDOW - 1 - np.arange(LONGEST))).reshape(1, LONGEST)
        earlier = gather(past, constant(place))
        is_same = (
            (earlier == broadcast(newest, place.shape)) & constant(place >= 0) & (earlier >= 0)
        )
        length = cast(reduce_sum(cumprod(cast(is_same, dtype.i32))), dtype.f32)
        penalty = exp((length - allowed) * math.log(base)) * multiplier
        penalty = select(length >= allowed, penalty, 0.0)
        _, order = sort_desc(-length)  # the longest last, which wins
        following = gather(gather(past, constant(WINDOW - np.arange(1, WINDOW))), order)
        zeros = broadcast(constant(0.0), [vocab])
        token = gumbel_max(logits - scatter_set(zeros, following, gather(penalty, order)), state)
        shifted = gather(past, iota(WINDOW) + 1)
        history.put(scatter_set(shifted, constant([WINDOW - 1]), token.reshape(1)))
        return token

    return choose
