"""Locally typical: Meister, Pimentel, Wiher, Cotterell, "Locally Typical Sampling" (2023)."""

from inferlet import *


def make(vocab, mass=0.7):
    def choose(logits, state):
        logprobs = log_softmax(logits)
        probs = exp(logprobs)
        distance = abs(logprobs + entropy(probs))
        _, order = sort_desc(-distance)  # the most typical first
        ranked = gather(probs, order)
        is_kept = cumsum(ranked) - ranked < mass
        mask = scatter_set(broadcast(constant(False), [vocab]), order, is_kept)
        return gumbel_max(mask_apply(logits, mask), state)

    return choose
