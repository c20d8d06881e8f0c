"""Epsilon and eta: Hewitt, Manning, Liang, "Truncation Sampling as Language Model Desmoothing"
(2022)."""

from inferlet import *


def make(vocab, epsilon=0.05, is_eta=True):
    def choose(logits, state):
        probs = softmax(logits)
        bar = constant(epsilon)
        if is_eta:
            bar = min_elem(bar, exp(-entropy(probs)) * epsilon**0.5)
        is_best = eq(iota(vocab), cast(reduce_argmax(probs), dtype.u32))
        return gumbel_max(mask_apply(logits, or_(prob_ge(probs, bar), is_best)), state)

    return choose
