"""The samplers of `tests.inferlet.samplers` by their papers: the distribution of the next token in
f64, from the logits and the tokens so far."""

import math

import numpy as np

from tests.inferlet.samplers import watermark


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def keep(probs, mask):
    kept = np.where(mask, probs, 0.0)
    return kept / kept.sum()


def entropy(probs):
    return -(probs * np.log(probs)).sum()


def temperature(logits, past, t=0.7):
    return softmax(logits / t)


def top_k(logits, past, k=5):
    return keep(softmax(logits), logits >= np.sort(logits)[-k])


def top_p(logits, past, p=0.8):
    return _smallest_set(softmax(logits), -logits, p)


def _smallest_set(probs, cost, mass):
    """The cheapest tokens that together have `mass`."""
    order = np.argsort(cost)
    count = np.searchsorted(np.cumsum(probs[order]), mass) + 1
    return keep(probs, np.isin(np.arange(len(probs)), order[:count]))


def min_p(logits, past, base=0.1):
    probs = softmax(logits)
    return keep(probs, probs >= base * probs.max())


def top_a(logits, past, a=0.4):
    probs = softmax(logits)
    return keep(probs, probs >= a * probs.max() ** 2)


def typical(logits, past, mass=0.7):
    probs = softmax(logits)
    return _smallest_set(probs, np.abs(-np.log(probs) - entropy(probs)), mass)


def epsilon(logits, past, e=0.05):
    probs = softmax(logits)
    return keep(probs, (probs >= e) | (probs == probs.max()))


def eta(logits, past, e=0.05):
    probs = softmax(logits)
    bar = min(e, math.sqrt(e) * math.exp(-entropy(probs)))
    return keep(probs, (probs >= bar) | (probs == probs.max()))


def mirostat(logits, past, target=2.0, rate=0.1):
    probs, most = softmax(logits), 2 * target
    for token in [*past, None]:
        kept = keep(probs, (-np.log2(probs) <= most) | (probs == probs.max()))
        if token is not None:
            most -= rate * (-np.log2(kept[token]) - target)
    return kept


def penalties(logits, past, repetition=1.3, presence=0.4, frequency=0.05):
    counts = np.bincount(past, minlength=len(logits))
    scaled = np.where(logits > 0, logits / repetition, logits * repetition)
    return softmax(np.where(counts > 0, scaled - presence, logits) - frequency * counts)


def xtc(logits, past, threshold=0.1, probability=0.5):
    probs = softmax(logits)
    top = probs >= threshold
    left_out = top & (probs > probs[top].min())
    return probability * keep(probs, ~left_out) + (1 - probability) * probs


def dry(logits, past, multiplier=0.8, base=1.75, allowed=2, window=24, longest=8):
    past, penalty = list(past)[-window:], {}
    for end in range(1, len(past)):  # a token that follows past[:end]
        length = 0
        while length < min(end, longest) and past[end - 1 - length] == past[-1 - length]:
            length += 1
        penalty[past[end]] = max(length, penalty.get(past[end], 0))
    lowered = logits.copy()
    for token, length in penalty.items():
        if length >= allowed:
            lowered[token] -= multiplier * base ** (length - allowed)
    return softmax(lowered)


def greenlist(logits, past, delta=2.0):
    green = watermark.green_list(int(past[-1]) if len(past) else 0, len(logits), 0.5, 15)
    return softmax(logits + delta * np.isin(np.arange(len(logits)), list(green)))
