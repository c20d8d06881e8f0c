"""Shape and dtype rules that the table rows name. One small function per rule; each takes the op's
name, the argument types and the attributes, and gives the result type or raises RuleError.
Refuses to know graphs, channels or values.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ipc.eta.fit import (
    HALVES,
    INTEGERS,
    NUMBERS,
    RuleError,
    Types,
    broadcasts,
    elementwise_shape,
    repair,
    shape_error,
    shape_text,
    want,
    want_one_dtype,
    want_rank,
    want_value,
)
from ipc.types import DType, TensorType

Attrs = Mapping[str, Any]


def arithmetic(name: str, types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    want(name, "a", a, NUMBERS)
    want(name, "b", b, NUMBERS)
    want_one_dtype(name, a, b)
    return TensorType(a.dtype, elementwise_shape(name, types))


def compare(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.bool_, arithmetic(name, types, attrs).shape)


def logic(name: str, types: Types, attrs: Attrs) -> TensorType:
    for arg, got in zip(("a", "b") if len(types) == 2 else ("x",), types, strict=True):
        want(name, arg, got, (DType.bool_,))
    return TensorType(DType.bool_, elementwise_shape(name, types))


def unary_number(name: str, types: Types, attrs: Attrs) -> TensorType:
    want(name, "x", types[0], NUMBERS)
    return types[0]


def unary_f32(name: str, types: Types, attrs: Attrs) -> TensorType:
    want(name, "x", types[0], (DType.f32,))
    return types[0]


def row_f32(name: str, types: Types, attrs: Attrs) -> TensorType:
    want_rank(name, "x", types[0], 1)
    return unary_f32(name, types, attrs)


def matmul(name: str, types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    for arg, got in (("a", a), ("b", b)):
        want(name, arg, got, (DType.f32,))
        want_rank(name, arg, got, 2, 2)
    if a.shape[1] != b.shape[0]:
        raise RuleError(
            f"`matmul` got {shape_text(a.shape)} and {shape_text(b.shape)}; the inner extents differ: "
            f"{a.shape[1]} and {b.shape[0]}",
            "use `transpose` where an operand lies the other way round",
        )
    return TensorType(DType.f32, (a.shape[0], b.shape[1]))


def mm(name: str, types: Types, attrs: Attrs) -> TensorType:
    w, e = types
    want(name, "w", w, (DType.f32, *HALVES))
    want(name, "e", e, (DType.f32,))
    for arg, got in (("w", w), ("e", e)):
        want_rank(name, arg, got, 2, 2)
    if w.shape[1] != e.shape[1]:
        raise RuleError(
            f"`mm` got w {shape_text(w.shape)} and e {shape_text(e.shape)}; the last extents differ",
            "`mm(w, e)` is `e @ w^T`: both end with the extent that is summed over",
        )
    return TensorType(DType.f32, (e.shape[0], w.shape[0]))


def transpose(name: str, types: Types, attrs: Attrs) -> TensorType:
    want_rank(name, "x", types[0], 2, 2)
    want_value(name, "x", types[0])
    return TensorType(types[0].dtype, types[0].shape[::-1])


def select(name: str, types: Types, attrs: Attrs) -> TensorType:
    c, a, b = types
    want(name, "c", c, (DType.bool_,))
    want_value(name, "a", a)
    want_value(name, "b", b)
    want_one_dtype(name, a, b)
    return TensorType(a.dtype, elementwise_shape(name, types))


def packed_words(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the packed mask of a tensor: 32 tokens in each word."""
    return (*shape[:-1], -(-shape[-1] // 32))


def mask_apply(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, m = types
    want(name, "x", x, (DType.f32,))
    if m.dtype != DType.u32:
        want(name, "m", m, (DType.bool_,))
        return TensorType(DType.f32, elementwise_shape(name, types))
    want_rank(name, "x", x, 1)
    if m.shape != packed_words(x.shape):
        raise RuleError(
            f"`{name}` got packed words {shape_text(m.shape)} for a tensor {shape_text(x.shape)}; "
            f"it takes {shape_text(packed_words(x.shape))}",
            "one u32 word holds 32 tokens, as `Matcher.mask()` packs them",
        )
    return x


def reshape(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, shape = types[0], attrs["shape"]
    want_value(name, "x", x)
    if prod(shape) != x.size:
        raise RuleError(
            f"`reshape` got shape {shape_text(x.shape)} with {x.size} elements, "
            f"and target {shape_text(shape)} with {prod(shape)}",
            "use `broadcast` to repeat elements",
        )
    return TensorType(x.dtype, shape)


def broadcast(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, shape = types[0], attrs["shape"]
    want_value(name, "x", x)
    if not broadcasts(x.shape, shape):
        text = repair(x.shape, shape)
        raise RuleError(
            f"`broadcast` cannot bring shape {shape_text(x.shape)} to {shape_text(shape)}; "
            "it aligns on the left, and only extents of 1 repeat",
            f"write `{text}`" if text else "make the leading extents equal, or 1",
        )
    return TensorType(x.dtype, shape)


def cast(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, target = types[0], attrs["dtype"]
    if target in HALVES and target != x.dtype:
        raise RuleError(f"`cast` cannot make {target.label}", "device programs compute in f32")
    if x.dtype in HALVES and target != DType.f32:
        raise RuleError(
            f"`cast` of {x.dtype.with_article} tensor goes to f32 only", "write `cast(x, dtype.f32)`"
        )
    return TensorType(target, x.shape)


def iota(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.u32, (attrs["n"],))


def indptr(name: str, types: Types, attrs: Attrs) -> TensorType:
    if attrs["rows"] < 1:
        raise RuleError("`indptr` got rows = 0; it takes at least 1")
    want(name, "run_len", types[0], (DType.u32,))
    if types[0].shape not in ((), (1,)):
        raise RuleError(
            f"`indptr` got run_len of shape {shape_text(types[0].shape)}; it takes () or [1]"
        )
    return TensorType(DType.u32, (attrs["rows"] + 1,))


def reduce_number(name: str, types: Types, attrs: Attrs) -> TensorType:
    want(name, "x", types[0], NUMBERS)
    return TensorType(types[0].dtype, types[0].shape[:-1])


def reduce_index(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.i32, reduce_number(name, types, attrs).shape)


def scan(name: str, types: Types, attrs: Attrs) -> TensorType:
    want(name, "x", types[0], NUMBERS)
    want_rank(name, "x", types[0], 1)
    return types[0]


def _per_row(name: str, arg: str, x: TensorType, got: TensorType, dtypes: Sequence[DType]) -> None:
    want(name, "x", x, (DType.f32,))
    want_rank(name, "x", x, 1, 2)
    want(name, arg, got, dtypes)
    rows = x.shape[:-1] or (1,)
    if got.shape not in ((), rows):
        raise RuleError(
            f"`{name}` got `{arg}` of shape {shape_text(got.shape)} for {rows[0]} rows; "
            f"it takes () or {shape_text(rows)}"
        )


def threshold(name: str, types: Types, attrs: Attrs) -> TensorType:
    _per_row(name, "t" if name == "prob_ge" else "p", types[0], types[1], (DType.f32,))
    return TensorType(DType.bool_, types[0].shape)


def rank(name: str, types: Types, attrs: Attrs) -> TensorType:
    _per_row(name, "k", types[0], types[1], INTEGERS)
    return TensorType(DType.bool_, types[0].shape)


def entropy(name: str, types: Types, attrs: Attrs) -> TensorType:
    for arg, got in zip(("p", "lp"), types, strict=False):
        want(name, arg, got, (DType.f32,))
        want_rank(name, arg, got, 1)
    if types[0].shape != types[-1].shape:
        raise shape_error(name, types[0].shape, types[-1].shape)
    return TensorType(DType.f32, types[0].shape[:-1])


def top_k(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, k = types[0], attrs["k"]
    want("top_k", "x", x, (DType.f32,))
    want_rank("top_k", "x", x, 1, 2)
    if not 1 <= k <= x.shape[-1]:
        raise RuleError(f"`top_k` got k = {k} for rows of {x.shape[-1]}; it takes 1 to the length")
    return TensorType(DType.u32, (*x.shape[:-1], k))


def pick(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, idx = types
    want_value(name, "x", x)
    want(name, "idx", idx, INTEGERS)
    want_rank(name, "x", x, 1)
    if idx.shape[:-1] != x.shape[:-1] or len(idx.shape) != len(x.shape):
        raise RuleError(f"`pick` got shapes {shape_text(x.shape)} and {shape_text(idx.shape)}")
    return TensorType(x.dtype, idx.shape)


def _state(name: str, got: TensorType) -> None:
    if got != TensorType(DType.u32, (2,)):
        raise RuleError(
            f"`{name}` got state {got}; it takes u32[2]", "the rng state is `[key, counter]`"
        )


def draw(name: str, types: Types, attrs: Attrs) -> TensorType:
    _state(name, types[0])
    if not attrs["shape"]:
        raise RuleError(f"`{name}` got shape (); it takes rank 1 to 4", "use [1]")
    return TensorType(DType.f32, attrs["shape"])


def gumbel_max(name: str, types: Types, attrs: Attrs) -> TensorType:
    logits, state = types
    want(name, "logits", logits, (DType.f32,))
    want_rank(name, "logits", logits, 1)
    _state(name, state)
    return TensorType(DType.i32, logits.shape[:-1])


def nucleus(name: str, types: Types, attrs: Attrs) -> TensorType:
    logits, top_p, state = types
    _per_row(name, "top_p", logits, top_p, (DType.f32,))
    return gumbel_max(name, (logits, state), attrs)


def masked_argmax(name: str, types: Types, attrs: Attrs) -> TensorType:
    want_rank(name, "logits", types[0], 1)
    return TensorType(DType.i32, mask_apply(name, types, attrs).shape[:-1])


def gather(name: str, types: Types, attrs: Attrs) -> TensorType:
    src, idx = types
    want_value(name, "src", src)
    want_rank(name, "src", src, 1)
    want(name, "idx", idx, INTEGERS)
    return TensorType(src.dtype, idx.shape + src.shape[1:])


def gather_row(name: str, types: Types, attrs: Attrs) -> TensorType:
    src, idx = types
    want_value(name, "src", src)
    want_rank(name, "src", src, 2, 2)
    want(name, "idx", idx, INTEGERS)
    if idx.shape != src.shape[:1]:
        raise RuleError(
            f"`gather_row` got {shape_text(idx.shape)} indices for {src.shape[0]} rows; "
            "it takes one index for each row"
        )
    return TensorType(src.dtype, idx.shape)


def scatter(name: str, types: Types, attrs: Attrs) -> TensorType:
    base, idx, vals = types
    want_value(name, "base", base)
    want_rank(name, "base", base, 1)
    want(name, "idx", idx, INTEGERS)
    want_rank(name, "idx", idx, 1, 1)
    want_one_dtype(name, base, vals)
    whole = idx.shape + base.shape[1:]
    if vals.shape not in ((), whole):
        raise RuleError(
            f"`{name}` got values of shape {shape_text(vals.shape)}; it takes {shape_text(whole)} or ()"
        )
    return base


def scatter_add(name: str, types: Types, attrs: Attrs) -> TensorType:
    want(name, "base", types[0], NUMBERS)
    return scatter(name, types, attrs)


def position_mask(name: str, types: Types, attrs: Attrs) -> TensorType:
    pos, length = types[0], attrs["length"]
    want(name, "pos", pos, (DType.u32,))
    want_rank(name, "pos", pos, 0, 3)
    if length < 1:
        raise RuleError(f"`{name}` got length = {length}; it takes at least 1")
    return TensorType(DType.bool_, (*pos.shape, length))
