"""Nucleus: Holtzman, Buys, Du, Forbes, Choi, "The Curious Case of Neural Text Degeneration" (2020)."""

from inferlet import cummass_le, gumbel_max, mask_apply, softmax


def make(vocab, p=0.8):
    def choose(logits, state):
        return gumbel_max(mask_apply(logits, cummass_le(softmax(logits), p)), state)

    return choose
