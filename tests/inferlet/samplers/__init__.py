"""Samplers of the literature, as users write them: `make(vocab)` gives a function of the logits and
the state of the random generator, which an epilogue calls. Each is at most 30 lines."""
