"""Top-k: Fan, Lewis, Dauphin, "Hierarchical Neural Story Generation" (2018)."""

from inferlet import gumbel_max, mask_apply, rank_le


def make(vocab, k=5):
    def choose(logits, state):
        return gumbel_max(mask_apply(logits, rank_le(logits, k)), state)

    return choose
