"""Mirostat 2.0: Basu, Ramachandran, Keskar, Varshney, "Mirostat: A Neural Text Decoding Algorithm
that Directly Controls Perplexity" (2021)."""

import math

from inferlet import *


def make(vocab, target=2.0, rate=0.1):
    limit = Channel.from_(2 * target)  # of the surprise in bits

    def choose(logits, state):
        most = limit.take()
        surprise = log_softmax(logits) / -math.log(2)
        is_best = eq(iota(vocab), cast(reduce_argmax(logits), dtype.u32))
        kept = mask_apply(logits, or_(surprise <= most, is_best))
        token = gumbel_max(kept, state)
        observed = gather(log_softmax(kept), token) / -math.log(2)
        limit.put(most - (observed - target) * rate)
        return token

    return choose
