"""Top-a: Peng Bo, "The top-a sampling method" (RWKV, 2022): the bar falls with the square of the
largest probability."""

from inferlet import gumbel_max, mask_apply, prob_ge, reduce_max, softmax


def make(vocab, a=0.4):
    def choose(logits, state):
        probs = softmax(logits)
        best = reduce_max(probs)
        return gumbel_max(mask_apply(logits, prob_ge(probs, best * best * a)), state)

    return choose
