"""XTC, exclude top choices: p-e-w, "Exclude Top Choices (XTC)" (text-generation-webui, 2024): now and
then all tokens above a threshold are left out, but for the least likely of them."""

import math

from inferlet import *


def make(vocab, threshold=0.1, probability=0.5):
    def choose(logits, state):
        probs = softmax(logits)
        is_top = prob_ge(probs, threshold)
        lowest = reduce_min(select(is_top, probs, 2.0))
        is_left_out = and_(is_top, probs > lowest)
        # A second stream of random numbers: u < probability, as -log(-log(u)) rises with u.
        dice = gumbel(state + constant([1, 0], dtype.u32), [1]).reshape(())
        is_on = dice < -math.log(-math.log(probability))
        return gumbel_max(mask_apply(logits, not_(and_(is_left_out, is_on))), state)

    return choose
