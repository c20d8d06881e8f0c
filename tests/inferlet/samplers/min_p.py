"""Min-p: Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs"
(2024)."""

from inferlet import gumbel_max, mask_apply, prob_ge, reduce_max, softmax


def make(vocab, base=0.1):
    def choose(logits, state):
        probs = softmax(logits)
        return gumbel_max(mask_apply(logits, prob_ge(probs, reduce_max(probs) * base)), state)

    return choose
