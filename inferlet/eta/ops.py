"""The eta operations. Generated from ipc/eta/ops.py by python -m ipc.eta.generate. Do not edit."""

from collections.abc import Sequence
from typing import Any

from inferlet.eta.composite import (
    abs,
    constant,
    cummass_le,
    indptr,
    mm,
    pivot_threshold,
    prob_ge,
    rank_le,
    sort_desc,
    top_k,
)
from inferlet.eta.tensor import Tensor
from inferlet.eta.trace import dtype_argument, int_argument, record, shape_argument
from ipc.types import DType

__all__ = [
    "abs",
    "add",
    "and_",
    "broadcast",
    "cast",
    "causal_mask",
    "constant",
    "cos",
    "cummass_le",
    "cumprod",
    "cumsum",
    "div",
    "entropy",
    "entropy_from_logprobs",
    "eq",
    "exp",
    "gather",
    "gather_row",
    "ge",
    "gt",
    "gumbel",
    "gumbel_max",
    "indptr",
    "iota",
    "l2norm",
    "le",
    "log",
    "log_softmax",
    "lt",
    "mask_apply",
    "masked_argmax",
    "matmul",
    "max_elem",
    "min_elem",
    "mm",
    "mul",
    "ne",
    "neg",
    "normal",
    "not_",
    "nucleus_sample",
    "or_",
    "pivot_threshold",
    "prob_ge",
    "rank_le",
    "recip",
    "reduce_argmax",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "rem",
    "reshape",
    "rsqrt",
    "scatter_add",
    "scatter_set",
    "select",
    "sign",
    "sin",
    "sink_window_mask",
    "sliding_window_mask",
    "softmax",
    "sort_desc",
    "sqrt",
    "sub",
    "top_k",
    "transpose",
]


def add(a: Any, b: Any) -> Tensor:
    """`a + b`. Integers wrap."""
    return record("add", a, b)


def sub(a: Any, b: Any) -> Tensor:
    """`a - b`. Integers wrap."""
    return record("sub", a, b)


def mul(a: Any, b: Any) -> Tensor:
    """`a * b`. Integers wrap."""
    return record("mul", a, b)


def div(a: Any, b: Any) -> Tensor:
    """`a / b`. Integers truncate toward zero; x / 0 = 0."""
    return record("div", a, b)


def rem(a: Any, b: Any) -> Tensor:
    """`a - b * trunc(a / b)`: the sign of the dividend; integer x rem 0 = 0."""
    return record("rem", a, b)


def neg(x: Any) -> Tensor:
    """`-x`; integers wrap."""
    return record("neg", x)


def sign(x: Any) -> Tensor:
    """-1, 0 or 1; the sign of NaN is 0."""
    return record("sign", x)


def exp(x: Any) -> Tensor:
    """e to the x."""
    return record("exp", x)


def log(x: Any) -> Tensor:
    """Natural logarithm: -inf at 0, NaN below."""
    return record("log", x)


def cos(x: Any) -> Tensor:
    """Cosine of radians."""
    return record("cos", x)


def sin(x: Any) -> Tensor:
    """Sine of radians."""
    return record("sin", x)


def sqrt(x: Any) -> Tensor:
    """Square root; NaN below 0."""
    return record("sqrt", x)


def rsqrt(x: Any) -> Tensor:
    """`1 / sqrt(x)`."""
    return record("rsqrt", x)


def recip(x: Any) -> Tensor:
    """`1 / x`."""
    return record("recip", x)


def max_elem(a: Any, b: Any) -> Tensor:
    """The larger; a number beats NaN; `max(-0, 0) = 0`."""
    return record("max_elem", a, b)


def min_elem(a: Any, b: Any) -> Tensor:
    """The smaller; a number beats NaN; `min(-0, 0) = -0`."""
    return record("min_elem", a, b)


def l2norm(x: Tensor) -> Tensor:
    """Each row divided by its Euclidean norm; a zero row gives NaN."""
    return record("l2norm", x)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`[m,k]` times `[k,n]`; rank 2 exactly."""
    return record("matmul", a, b)


def transpose(x: Tensor) -> Tensor:
    """`[m,n]` to `[n,m]`."""
    return record("transpose", x)


def eq(a: Any, b: Any) -> Tensor:
    """`a == b`."""
    return record("eq", a, b)


def ne(a: Any, b: Any) -> Tensor:
    """`a != b`; True with NaN."""
    return record("ne", a, b)


def lt(a: Any, b: Any) -> Tensor:
    """`a < b`."""
    return record("lt", a, b)


def le(a: Any, b: Any) -> Tensor:
    """`a <= b`."""
    return record("le", a, b)


def gt(a: Any, b: Any) -> Tensor:
    """`a > b`."""
    return record("gt", a, b)


def ge(a: Any, b: Any) -> Tensor:
    """`a >= b`."""
    return record("ge", a, b)


def and_(a: Any, b: Any) -> Tensor:
    """Both."""
    return record("and_", a, b)


def or_(a: Any, b: Any) -> Tensor:
    """Either."""
    return record("or_", a, b)


def not_(x: Any) -> Tensor:
    """The opposite."""
    return record("not_", x)


def select(c: Any, a: Any, b: Any) -> Tensor:
    """`a` where `c`, else `b`. Both are computed."""
    return record("select", c, a, b)


def mask_apply(x: Any, m: Any) -> Tensor:
    """`select(m, x, -inf)`; for x `[..,n]`, m may be packed words, u32 `[..,ceil(n/32)]`."""
    return record("mask_apply", x, m)


def reshape(x: Any, shape: int | Sequence[int]) -> Tensor:
    """Row-major, equal element count."""
    return record("reshape", x, shape=shape_argument("reshape", shape))


def broadcast(x: Any, shape: int | Sequence[int]) -> Tensor:
    """Aligns on the left; extents of 1 repeat."""
    return record("broadcast", x, shape=shape_argument("broadcast", shape))


def cast(x: Any, dtype: DType) -> Tensor:
    """f32 to integers truncates and saturates; i32 and u32 wrap; a number is True unless 0."""
    return record("cast", x, dtype=dtype_argument("cast", dtype))


def iota(n: int) -> Tensor:
    """u32 `[n]`: 0 .. n-1."""
    return record("iota", n=int_argument("iota", "n", n))


def reduce_max(x: Any) -> Tensor:
    """Largest of each row, ignoring NaN; -inf for a row of NaN."""
    return record("reduce_max", x)


def reduce_min(x: Any) -> Tensor:
    """Smallest of each row, ignoring NaN; +inf for a row of NaN."""
    return record("reduce_min", x)


def reduce_sum(x: Any) -> Tensor:
    """Sum of each row. Integers wrap; f32 adds in the fixed tree."""
    return record("reduce_sum", x)


def reduce_argmax(x: Any) -> Tensor:
    """Lowest index of each row's maximum; NaN is never chosen; 0 for a row of NaN."""
    return record("reduce_argmax", x)


def cumsum(x: Tensor) -> Tensor:
    """Inclusive sums, left to right."""
    return record("cumsum", x)


def cumprod(x: Tensor) -> Tensor:
    """Inclusive products, left to right."""
    return record("cumprod", x)


def softmax(x: Tensor) -> Tensor:
    """`exp(x-m) / sum(exp(x-m))` of each row."""
    return record("softmax", x)


def log_softmax(x: Tensor) -> Tensor:
    """`(x-m) - log(sum(exp(x-m)))` of each row."""
    return record("log_softmax", x)


def entropy(p: Tensor) -> Tensor:
    """`-sum(p * log(max_elem(p, 2^-126)))` of each row, in nats."""
    return record("entropy", p)


def entropy_from_logprobs(p: Tensor, lp: Tensor) -> Tensor:
    """`-sum(p * lp)` of each row, no guard."""
    return record("entropy_from_logprobs", p, lp)


def gumbel(state: Tensor, shape: int | Sequence[int]) -> Tensor:
    """Standard Gumbel draws; state is u32 `[2]`: key and counter, and draws advance neither."""
    return record("gumbel", state, shape=shape_argument("gumbel", shape))


def normal(state: Tensor, shape: int | Sequence[int]) -> Tensor:
    """Standard normal draws; state as for `gumbel`."""
    return record("normal", state, shape=shape_argument("normal", shape))


def gumbel_max(logits: Tensor, state: Tensor) -> Tensor:
    """A sample of softmax(logits): `reduce_argmax(logits + gumbel(state, logits.shape))`."""
    return record("gumbel_max", logits, state)


def nucleus_sample(logits: Tensor, top_p: Any, state: Tensor) -> Tensor:
    """A sample from the smallest set of likeliest elements with mass top_p."""
    return record("nucleus_sample", logits, top_p, state)


def masked_argmax(logits: Tensor, m: Any) -> Tensor:
    """`reduce_argmax(mask_apply(logits, m))`; 0 when nothing is allowed."""
    return record("masked_argmax", logits, m)


def gather(src: Tensor, idx: Any) -> Tensor:
    """`src[idx]` along axis 0; zero or False out of range."""
    return record("gather", src, idx)


def gather_row(src: Tensor, idx: Tensor) -> Tensor:
    """`src[i, idx[i]]` for src `[m,n]`; zero or False out of range."""
    return record("gather_row", src, idx)


def scatter_set(base: Any, idx: Tensor, vals: Any) -> Tensor:
    """Copy of base with rows replaced; the last duplicate wins."""
    return record("scatter_set", base, idx, vals)


def scatter_add(base: Any, idx: Tensor, vals: Any) -> Tensor:
    """Copy of base with rows added to, in index order."""
    return record("scatter_add", base, idx, vals)


def causal_mask(pos: Tensor, length: int) -> Tensor:
    """`k <= pos`."""
    return record("causal_mask", pos, length=int_argument("causal_mask", "length", length))


def sliding_window_mask(pos: Tensor, length: int, window: int) -> Tensor:
    """`k <= pos` and `k + window > pos`."""
    return record(
        "sliding_window_mask",
        pos,
        length=int_argument("sliding_window_mask", "length", length),
        window=int_argument("sliding_window_mask", "window", window),
    )


def sink_window_mask(pos: Tensor, length: int, sink: int, window: int) -> Tensor:
    """`k <= pos` and (`k < sink` or `k + window > pos`)."""
    return record(
        "sink_window_mask",
        pos,
        length=int_argument("sink_window_mask", "length", length),
        sink=int_argument("sink_window_mask", "sink", sink),
        window=int_argument("sink_window_mask", "window", window),
    )
