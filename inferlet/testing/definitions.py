"""The living definition of every op, in numpy: slow, obvious, one instance at a time.
Backends are compared with it. u32 is numpy's uint32; bf16 is its bits in uint16.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ipc.types import DType, TensorType

NUMPY = {
    DType.f32: np.float32,
    DType.i32: np.int32,
    DType.u32: np.uint32,
    DType.bool_: np.bool_,
    DType.f16: np.float16,
    DType.bf16: np.uint16,
}
TINY = np.float32(2.0**-126)

Array = np.ndarray
Definition = Callable[..., Any]


class Call(NamedTuple):
    """What a definition knows besides its operands."""

    types: list[TensorType]
    result: TensorType
    attrs: dict[str, Any]


DEFINITIONS: dict[str, Definition] = {}


def define(name: str) -> Callable[[Definition], Definition]:
    def register(function: Definition) -> Definition:
        DEFINITIONS[name] = function
        return function

    return register


def _simple(name: str, function: Callable[..., Any]) -> None:
    DEFINITIONS[name] = lambda call, *args: function(*args)


# -- arithmetic: numpy's integers wrap, its floats are IEEE

for _name, _function in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "exp": np.exp, "log": np.log, "cos": np.cos, "sin": np.sin, "sqrt": np.sqrt,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and_": np.logical_and, "or_": np.logical_or, "not_": np.logical_not,
    "select": np.where,
}.items():  # fmt: skip
    _simple(_name, _function)

_simple("rsqrt", lambda x: np.float32(1) / np.sqrt(x))
_simple("recip", lambda x: np.float32(1) / x)
_simple("transpose", lambda x: x.T)


def _truncated(a: Array, b: Array) -> tuple[Array, Array, Array]:
    a, b = np.broadcast_arrays(a.astype(np.int64), b.astype(np.int64))
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
    return a, b, np.where(b == 0, 0, quotient)


@define("div")
def div(call: Call, a: Array, b: Array) -> Array:
    if call.result.dtype == DType.f32:
        return a / b
    return _truncated(a, b)[2]


@define("rem")
def rem(call: Call, a: Array, b: Array) -> Array:
    if call.result.dtype == DType.f32:
        return np.fmod(a, b)
    a, b, quotient = _truncated(a, b)
    return np.where(b == 0, 0, a - b * quotient)


@define("sign")
def sign(call: Call, x: Array) -> Array:
    return (x > 0).astype(np.int64) - (x < 0).astype(np.int64)


@define("max_elem")
def max_elem(call: Call, a: Array, b: Array) -> Array:
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, a + b, np.fmax(a, b)) if call.result.dtype == DType.f32 else np.maximum(a, b)


@define("min_elem")
def min_elem(call: Call, a: Array, b: Array) -> Array:
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, -(-a - b), np.fmin(a, b)) if call.result.dtype == DType.f32 else np.minimum(a, b)


@define("l2norm")
def l2norm(call: Call, x: Array) -> Array:
    return x / np.sqrt(sum_tree(x * x))[..., None]


@define("matmul")
def matmul(call: Call, a: Array, b: Array) -> Array:
    return sum_tree(a[:, None, :] * b.T[None, :, :])


@define("mm")
def mm(call: Call, w: Array, e: Array) -> Array:
    return sum_tree(e[:, None, :] * _as_f32(w, call.types[0].dtype)[None, :, :])


def _as_f32(x: Array, dtype: DType) -> Array:
    if dtype == DType.bf16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32)


@define("mask_apply")
def mask_apply(call: Call, x: Array, m: Array) -> Array:
    if call.types[1].dtype == DType.u32:
        bits = (m[..., None] >> np.arange(32, dtype=np.uint32)) & 1
        m = bits.reshape(*m.shape[:-1], -1)[..., : x.shape[-1]] != 0
    return np.where(m, x, np.float32(-np.inf))


# -- shape


@define("reshape")
def reshape(call: Call, x: Array) -> Array:
    return x.reshape(call.result.shape)


@define("broadcast")
def broadcast(call: Call, x: Array) -> Array:
    shape = call.result.shape
    return np.broadcast_to(x.reshape(x.shape + (1,) * (len(shape) - x.ndim)), shape)


@define("cast")
def cast(call: Call, x: Array) -> Array:
    source, target = call.types[0].dtype, call.result.dtype
    if target == DType.bool_:
        return x != 0
    if source == DType.f32 and target in (DType.i32, DType.u32):
        bounds = np.iinfo(NUMPY[target])
        whole = np.where(np.isnan(x), 0.0, np.trunc(x.astype(np.float64)))
        return np.clip(whole, bounds.min, bounds.max).astype(np.int64)
    return _as_f32(x, source) if target == DType.f32 else x


@define("iota")
def iota(call: Call) -> Array:
    return np.arange(call.attrs["n"], dtype=np.uint32)


@define("indptr")
def indptr(call: Call, run_len: Array) -> Array:
    return np.arange(call.attrs["rows"] + 1, dtype=np.uint32) * run_len.reshape(())


# -- reductions and scans


def sum_tree(x: Array) -> Array:
    """f32 sums of the last axis in the order that the language fixes."""
    while True:
        pad = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)]
        x = np.pad(x, pad).reshape(*x.shape[:-1], -1, 32)
        for width in (16, 8, 4, 2, 1):
            x = x[..., :width] + x[..., width : 2 * width]
        x = x[..., 0]
        if x.shape[-1] == 1:
            return x[..., 0]


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
        chosen = -1
        for index, value in enumerate(x[at]):
            if value == value and (chosen < 0 or value > x[at][chosen]):
                chosen = index
        best[at] = max(chosen, 0)
    return best


_simple("cumsum", lambda x: np.cumsum(x, -1, dtype=x.dtype))
_simple("cumprod", lambda x: np.cumprod(x, -1, dtype=x.dtype))


def _per_row(x: Array, value: Array) -> Array:
    return np.broadcast_to(value.reshape(-1, *[1] * (x.ndim - 1)), (*x.shape[:-1], 1))


def _order(row: Array) -> Array:
    """Indices of one row: descending, lower index first, NaN last."""
    return np.array(sorted(range(len(row)), key=lambda i: (np.isnan(row[i]), -row[i], i)))


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
            kept[i] = mass < limits[index]
            mass += float(row[i])
        return kept

    return _rows(x, keep)


@define("rank_le")
def rank_le(call: Call, x: Array, k: Array) -> Array:
    limits = _per_row(x, k.astype(np.int64)).reshape(-1)

    def keep(index: int, row: Array) -> Array:
        greater = np.array([(row > value).sum() for value in row])
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


_simple("entropy_from_logprobs", lambda p, lp: -sum_tree(p * lp))


@define("top_k_indices")
def top_k_indices(call: Call, x: Array) -> Array:
    return _rows(x, lambda _, row: _order(row)[: call.attrs["k"]])


@define("pick")
def pick(call: Call, x: Array, idx: Array) -> Array:
    indices = idx.reshape(-1, idx.shape[-1])
    return _rows(x, lambda at, row: _at(row, indices[at])).reshape(idx.shape)


def uniform(state: Array, count: int) -> Array:
    """The first `count` draws in (0, 1), f32."""
    key, counter = (int(word) for word in state)
    seed = _mix(key << 32 | counter)
    bits = [_mix(seed + 0x9E3779B97F4A7C15 * (j + 1)) >> 40 for j in range(count)]
    u = (np.array(bits, np.uint32).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)
    return np.minimum(u, np.float32(1 - 2.0**-24))


def _mix(z: int) -> int:
    mask = (1 << 64) - 1
    z &= mask
    z ^= z >> 27
    z = z * 0x3C79AC492BA7B653 & mask
    z ^= z >> 33
    z = z * 0x1C69B3F74AC4AE35 & mask
    return z ^ z >> 27


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


# -- indexing and masks


def _at(src: Array, idx: Array) -> Array:
    """`src[idx]` along axis 0, zeros where the index is out of range."""
    wide = np.asarray(idx, np.int64)
    valid = (wide >= 0) & (wide < len(src))
    rows = src[np.where(valid, wide, 0)]
    valid = valid.reshape(valid.shape + (1,) * (rows.ndim - valid.ndim))
    return np.where(valid, rows, np.zeros_like(rows))


_simple("gather", _at)
_simple("gather_row", lambda src, idx: np.array([_at(row, i) for row, i in zip(src, idx)]))


def _scatter(base: Array, idx: Array, vals: Array, add: bool) -> Array:
    result = base.copy()
    values = np.broadcast_to(vals, idx.shape + base.shape[1:])
    for index, value in zip(idx.astype(np.int64), values, strict=True):
        if 0 <= index < len(base):
            result[index] = result[index] + value if add else value
    return result


_simple("scatter_set", lambda base, idx, vals: _scatter(base, idx, vals, add=False))
_simple("scatter_add", lambda base, idx, vals: _scatter(base, idx, vals, add=True))


def _columns(call: Call, pos: Array) -> tuple[Array, Array]:
    return np.arange(call.attrs["length"]), pos.astype(np.int64)[..., None]


@define("causal_mask")
def causal_mask(call: Call, pos: Array) -> Array:
    k, at = _columns(call, pos)
    return k <= at


@define("sliding_window_mask")
def sliding_window_mask(call: Call, pos: Array) -> Array:
    k, at = _columns(call, pos)
    return (k <= at) & (k + call.attrs["window"] > at)


@define("sink_window_mask")
def sink_window_mask(call: Call, pos: Array) -> Array:
    k, at = _columns(call, pos)
    return (k <= at) & ((k < call.attrs["sink"]) | (k + call.attrs["window"] > at))


def evaluate(name: str, call: Call, args: list[Array]) -> Array:
    """One op. Every op is total on values, so numpy's warnings about them say nothing."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = DEFINITIONS[name](call, *args)
        return np.asarray(result).astype(NUMPY[call.result.dtype])
