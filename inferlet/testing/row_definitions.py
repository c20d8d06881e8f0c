"""Definitions of the ops that work along the last axis, and of the generator."""

from collections.abc import Callable

import numpy as np

from inferlet.testing.definitions import (
    Array,
    Call,
    define,
    define_simple,
    mask_apply,
    rows_at,
    sum_tree,
)

TINY = np.float32(2.0**-126)


# -- reductions and scans


def _row(x: Array) -> Array:
    return x[None] if x.ndim == 0 else x


@define("reduce_max")
def reduce_max(call: Call, x: Array) -> Array:
    x = _row(x)
    if x.dtype != np.float32:
        return x.max(-1)
    top = np.where(np.isnan(x), np.float32(-np.inf), x).max(-1)
    has_zero = ((x == 0) & ~np.signbit(x)).any(-1)
    return np.where(top == 0, np.where(has_zero, np.float32(0), np.float32(-0.0)), top)


@define("reduce_min")
def reduce_min(call: Call, x: Array) -> Array:
    return -reduce_max(call, -x) if x.dtype == np.float32 else _row(x).min(-1)


@define("reduce_sum")
def reduce_sum(call: Call, x: Array) -> Array:
    x = _row(x)
    return sum_tree(x) if x.dtype == np.float32 else x.sum(-1, dtype=x.dtype)


@define("reduce_argmax")
def reduce_argmax(call: Call, x: Array) -> Array:
    x = _row(x)
    best = np.zeros(x.shape[:-1], np.int32)
    for at in np.ndindex(best.shape):
        number = np.flatnonzero(~np.isnan(x[at]))
        best[at] = number[x[at][number].argmax()] if len(number) else 0
    return best


define_simple("cumsum", lambda x: np.cumsum(x, -1, dtype=x.dtype))
define_simple("cumprod", lambda x: np.cumprod(x, -1, dtype=x.dtype))


def _per_row(x: Array, value: Array) -> Array:
    return np.broadcast_to(value.reshape(-1, *[1] * (x.ndim - 1)), (*x.shape[:-1], 1))


def _order(row: Array) -> Array:
    """Indices of one row: descending, lower index first, NaN last."""
    return np.lexsort((-row, np.isnan(row)))  # stable; the last key counts first


def _rows(x: Array, function: Callable[[int, Array], Array]) -> Array:
    flat = x.reshape(-1, x.shape[-1])
    rows = np.stack([function(index, row) for index, row in enumerate(flat)])
    return rows.reshape(*x.shape[:-1], *rows.shape[1:])


@define("cummass_le")
def cummass_le(call: Call, x: Array, p: Array) -> Array:
    limits = _per_row(x, p).reshape(-1)

    def keep(index: int, row: Array) -> Array:
        kept, mass = np.zeros(len(row), bool), 0.0
        for i in _order(row):
            if np.isnan(row[i]):
                break
            kept[i] = mass < float(limits[index])  # in f64, as the mass is
            mass += float(row[i])
        return kept

    return _rows(x, keep)


@define("rank_le")
def rank_le(call: Call, x: Array, k: Array) -> Array:
    limits = _per_row(x, k.astype(np.int64)).reshape(-1)

    def keep(index: int, row: Array) -> Array:
        ascending = np.sort(row[~np.isnan(row)])
        greater = len(ascending) - np.searchsorted(ascending, row, "right")
        return (greater < limits[index]) & ~np.isnan(row)

    return _rows(x, keep)


@define("prob_ge")
def prob_ge(call: Call, x: Array, t: Array) -> Array:
    return x >= _per_row(x, t)


# -- distributions


@define("softmax")
def softmax(call: Call, x: Array) -> Array:
    e = np.exp(x - reduce_max(call, x)[..., None])
    return e / sum_tree(e)[..., None]


@define("log_softmax")
def log_softmax(call: Call, x: Array) -> Array:
    centred = x - reduce_max(call, x)[..., None]
    return centred - np.log(sum_tree(np.exp(centred)))[..., None]


@define("entropy")
def entropy(call: Call, p: Array) -> Array:
    return -sum_tree(p * np.log(np.fmax(p, TINY)))


define_simple("entropy_from_logprobs", lambda p, lp: -sum_tree(p * lp))


@define("top_k_indices")
def top_k_indices(call: Call, x: Array) -> Array:
    return _rows(x, lambda _, row: _order(row)[: call.attrs["k"]])


@define("pick")
def pick(call: Call, x: Array, idx: Array) -> Array:
    indices = idx.reshape(-1, idx.shape[-1])
    return _rows(x, lambda at, row: rows_at(row, indices[at])).reshape(idx.shape)


def uniform(state: Array, count: int) -> Array:
    """The first `count` draws in (0, 1), f32."""
    key, counter = (int(word) for word in state)
    seed = _mix(np.array([key << 32 | counter], np.uint64))
    bits = _mix(seed + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64))
    u = ((bits >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)
    return np.minimum(u, np.float32(1 - 2.0**-24))


def _mix(z: Array) -> Array:
    """Arrays of uint64, which wrap."""
    z = z ^ z >> np.uint64(27)
    z = z * np.uint64(0x3C79AC492BA7B653)
    z = z ^ z >> np.uint64(33)
    z = z * np.uint64(0x1C69B3F74AC4AE35)
    return z ^ z >> np.uint64(27)


def _gumbel(state: Array, shape: tuple[int, ...]) -> Array:
    return -np.log(-np.log(uniform(state, int(np.prod(shape))))).reshape(shape)


@define("gumbel")
def gumbel(call: Call, state: Array) -> Array:
    return _gumbel(state, call.result.shape)


@define("normal")
def normal(call: Call, state: Array) -> Array:
    u = uniform(state, 2 * call.result.size)
    radius = np.sqrt(np.float32(-2) * np.log(u[::2]))
    return (radius * np.cos(np.float32(2 * np.pi) * u[1::2])).reshape(call.result.shape)


@define("gumbel_max")
def gumbel_max(call: Call, logits: Array, state: Array) -> Array:
    return reduce_argmax(call, logits + _gumbel(state, logits.shape))


@define("nucleus_sample")
def nucleus_sample(call: Call, logits: Array, top_p: Array, state: Array) -> Array:
    keep = cummass_le(call, softmax(call, logits), top_p)
    np.put_along_axis(keep, reduce_argmax(call, logits)[..., None].astype(np.int64), True, -1)
    return gumbel_max(call, np.where(keep, logits, np.float32(-np.inf)), state)


@define("masked_argmax")
def masked_argmax(call: Call, logits: Array, m: Array) -> Array:
    return reduce_argmax(call, mask_apply(call, logits, m))
