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


def define_simple(name: str, function: Callable[..., Any]) -> None:
    DEFINITIONS[name] = lambda call, *args: function(*args)


# -- arithmetic: numpy's integers wrap, its floats are IEEE

for _name, _function in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "exp": np.exp, "log": np.log, "cos": np.cos, "sin": np.sin, "sqrt": np.sqrt,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and_": np.logical_and, "or_": np.logical_or, "not_": np.logical_not,
    "select": np.where,
}.items():  # fmt: skip
    define_simple(_name, _function)

define_simple("rsqrt", lambda x: np.float32(1) / np.sqrt(x))
define_simple("recip", lambda x: np.float32(1) / x)
define_simple("transpose", lambda x: x.T)


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
    return (
        np.where(zeros, a + b, np.fmax(a, b))
        if call.result.dtype == DType.f32
        else np.maximum(a, b)
    )


@define("min_elem")
def min_elem(call: Call, a: Array, b: Array) -> Array:
    zeros = (a == 0) & (b == 0)
    return (
        np.where(zeros, -(-a - b), np.fmin(a, b))
        if call.result.dtype == DType.f32
        else np.minimum(a, b)
    )


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


# -- indexing and masks


def rows_at(src: Array, idx: Array) -> Array:
    """`src[idx]` along axis 0, zeros where the index is out of range."""
    wide = np.asarray(idx, np.int64)
    valid = (wide >= 0) & (wide < len(src))
    rows = src[np.where(valid, wide, 0)]
    valid = valid.reshape(valid.shape + (1,) * (rows.ndim - valid.ndim))
    return np.where(valid, rows, np.zeros_like(rows))


define_simple("gather", rows_at)
define_simple(
    "gather_row", lambda src, idx: np.array([rows_at(row, i) for row, i in zip(src, idx)])
)


def _scatter(base: Array, idx: Array, vals: Array, add: bool) -> Array:
    result = base.copy()
    values = np.broadcast_to(vals, idx.shape + base.shape[1:])
    for index, value in zip(idx.astype(np.int64), values, strict=True):
        if 0 <= index < len(base):
            result[index] = result[index] + value if add else value
    return result


define_simple("scatter_set", lambda base, idx, vals: _scatter(base, idx, vals, add=False))
define_simple("scatter_add", lambda base, idx, vals: _scatter(base, idx, vals, add=True))


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
