"""Temperature: Ackley, Hinton, Sejnowski, "A Learning Algorithm for Boltzmann Machines" (1985)."""

from inferlet import gumbel_max


def make(vocab, temperature=0.7):
    def choose(logits, state):
        return gumbel_max(logits / temperature, state)

    return choose
