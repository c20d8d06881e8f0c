"""Shape and dtype rules that the table rows name. One small function per rule; each takes the op's
name, the argument types and the attributes, and gives the result type or raises RuleError.
Refuses to know graphs, channels or values.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ipc.types import DType, TensorType

MAX_RANK = 4
NUMBERS = (DType.f32, DType.i32, DType.u32)
INTEGERS = (DType.i32, DType.u32)
HALVES = (DType.bf16, DType.f16)

Types = Sequence[TensorType]
Attrs = Mapping[str, Any]
Rule = Callable[[str, Types, Attrs], TensorType]


class RuleError(Exception):
    """Shapes or dtypes do not fit the op."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def _shape(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if shape else "()"


def _want(name: str, arg: str, got: TensorType, accepted: Sequence[DType]) -> None:
    if got.dtype in accepted:
        return
    names = ", ".join(dtype.label for dtype in accepted)
    what = f"`{name}` got a {got.dtype.label} tensor for `{arg}`; it takes {names}"
    if got.dtype in HALVES:
        raise RuleError(what, f"write `cast({arg}, dtype.f32)` first")
    target = accepted[0].label
    raise RuleError(what, f"write `cast({arg}, dtype.{target})`")


def _rank(name: str, arg: str, got: TensorType, low: int, high: int = MAX_RANK) -> None:
    if low <= len(got.shape) <= high:
        return
    ranks = str(low) if low == high else f"{low} to {high}"
    what = f"`{name}` got shape {_shape(got.shape)} for `{arg}`; it takes rank {ranks}"
    raise RuleError(what, f"`reshape` gives `{arg}` another rank")


def _one_dtype(name: str, a: TensorType, b: TensorType) -> None:
    if a.dtype == b.dtype:
        return
    arg, target = ("b", a.dtype) if a.dtype in (DType.f32, *HALVES) else ("a", b.dtype)
    if target in HALVES:
        target = DType.f32
    raise RuleError(
        f"`{name}` got {a.dtype.label} and {b.dtype.label}; tensors never convert on their own",
        f"write `cast({arg}, dtype.{target.label})`, where `{arg}` is the "
        f"{'first' if arg == 'a' else 'second'} operand",
    )


def repair(small: tuple[int, ...], large: tuple[int, ...]) -> str:
    """The expression that makes a tensor `x` of shape `small` fit `large`; "" when there is none."""
    if prod(small) == prod(large):
        return f"reshape(x, {list(large)})"
    if _broadcasts(small, large):
        return f"broadcast(x, {list(large)})"
    padded = (1,) * (len(large) - len(small)) + small
    if _broadcasts(padded, large):
        return f"broadcast(reshape(x, {list(padded)}), {list(large)})"
    return ""


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) > len(target):
        return False
    return all(extent in (1, target[axis]) for axis, extent in enumerate(shape))


def _elementwise(name: str, types: Types) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for other in types:
        if not other.shape or other.shape == shape:
            continue
        if shape:
            raise _shape_error(name, shape, other.shape)
        shape = other.shape
    return shape


def _shape_error(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> RuleError:
    what = f"`{name}` got shapes {_shape(a)} and {_shape(b)}; they must be equal, or one be ()"
    for small, large in ((a, b), (b, a)):
        if text := repair(small, large):
            return RuleError(what, f"write `{text}` for the operand of shape {_shape(small)}")
    return RuleError(what, "use `broadcast` or `reshape` so that the element counts agree")


def arithmetic(name: str, types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    _want(name, "a", a, NUMBERS)
    _want(name, "b", b, NUMBERS)
    _one_dtype(name, a, b)
    return TensorType(a.dtype, _elementwise(name, types))


def compare(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.bool_, arithmetic(name, types, attrs).shape)


def logic(name: str, types: Types, attrs: Attrs) -> TensorType:
    for arg, got in zip(("a", "b") if len(types) == 2 else ("x",), types, strict=True):
        _want(name, arg, got, (DType.bool_,))
    return TensorType(DType.bool_, _elementwise(name, types))


def unary_number(name: str, types: Types, attrs: Attrs) -> TensorType:
    _want(name, "x", types[0], NUMBERS)
    return types[0]


def unary_f32(name: str, types: Types, attrs: Attrs) -> TensorType:
    _want(name, "x", types[0], (DType.f32,))
    return types[0]


def row_f32(name: str, types: Types, attrs: Attrs) -> TensorType:
    _rank(name, "x", types[0], 1)
    return unary_f32(name, types, attrs)


def matmul(name: str, types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    for arg, got in (("a", a), ("b", b)):
        _want(name, arg, got, (DType.f32,))
        _rank(name, arg, got, 2, 2)
    if a.shape[1] != b.shape[0]:
        raise RuleError(
            f"`matmul` got {_shape(a.shape)} and {_shape(b.shape)}; the inner extents differ: "
            f"{a.shape[1]} and {b.shape[0]}",
            "use `transpose` where an operand lies the other way round",
        )
    return TensorType(DType.f32, (a.shape[0], b.shape[1]))


def mm(name: str, types: Types, attrs: Attrs) -> TensorType:
    w, e = types
    _want(name, "w", w, (DType.f32, *HALVES))
    _want(name, "e", e, (DType.f32,))
    for arg, got in (("w", w), ("e", e)):
        _rank(name, arg, got, 2, 2)
    if w.shape[1] != e.shape[1]:
        raise RuleError(
            f"`mm` got w {_shape(w.shape)} and e {_shape(e.shape)}; the last extents differ",
            "`mm(w, e)` is `e @ w^T`: both end with the extent that is summed over",
        )
    return TensorType(DType.f32, (e.shape[0], w.shape[0]))


def transpose(name: str, types: Types, attrs: Attrs) -> TensorType:
    _rank(name, "x", types[0], 2, 2)
    _value(name, "x", types[0])
    return TensorType(types[0].dtype, types[0].shape[::-1])


def _value(name: str, arg: str, got: TensorType) -> None:
    """Refuses the half dtypes, whose one operation is `cast`."""
    _want(name, arg, got, (DType.f32, DType.i32, DType.u32, DType.bool_))


def select(name: str, types: Types, attrs: Attrs) -> TensorType:
    c, a, b = types
    _want(name, "c", c, (DType.bool_,))
    _value(name, "a", a)
    _value(name, "b", b)
    _one_dtype(name, a, b)
    return TensorType(a.dtype, _elementwise(name, types))


def packed_words(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the packed mask of a tensor: 32 tokens in each word."""
    return (*shape[:-1], -(-shape[-1] // 32))


def mask_apply(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, m = types
    _want(name, "x", x, (DType.f32,))
    if m.dtype != DType.u32:
        _want(name, "m", m, (DType.bool_,))
        return TensorType(DType.f32, _elementwise(name, types))
    _rank(name, "x", x, 1)
    if m.shape != packed_words(x.shape):
        raise RuleError(
            f"`{name}` got packed words {_shape(m.shape)} for a tensor {_shape(x.shape)}; "
            f"it takes {_shape(packed_words(x.shape))}",
            "one u32 word holds 32 tokens, as `Matcher.mask()` packs them",
        )
    return x


def reshape(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, shape = types[0], attrs["shape"]
    _value(name, "x", x)
    if prod(shape) != x.size:
        raise RuleError(
            f"`reshape` got shape {_shape(x.shape)} with {x.size} elements, "
            f"and target {_shape(shape)} with {prod(shape)}",
            "use `broadcast` to repeat elements",
        )
    return TensorType(x.dtype, shape)


def broadcast(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, shape = types[0], attrs["shape"]
    _value(name, "x", x)
    if not _broadcasts(x.shape, shape):
        text = repair(x.shape, shape)
        raise RuleError(
            f"`broadcast` cannot bring shape {_shape(x.shape)} to {_shape(shape)}; "
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
            f"`cast` of a {x.dtype.label} tensor goes to f32 only", "write `cast(x, dtype.f32)`"
        )
    return TensorType(target, x.shape)


def iota(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.u32, (attrs["n"],))


def indptr(name: str, types: Types, attrs: Attrs) -> TensorType:
    if attrs["rows"] < 1:
        raise RuleError("`indptr` got rows = 0; it takes at least 1")
    _want(name, "run_len", types[0], (DType.u32,))
    if types[0].shape not in ((), (1,)):
        raise RuleError(f"`indptr` got run_len of shape {_shape(types[0].shape)}; it takes () or [1]")
    return TensorType(DType.u32, (attrs["rows"] + 1,))


def reduce_number(name: str, types: Types, attrs: Attrs) -> TensorType:
    _want(name, "x", types[0], NUMBERS)
    return TensorType(types[0].dtype, types[0].shape[:-1])


def reduce_index(name: str, types: Types, attrs: Attrs) -> TensorType:
    return TensorType(DType.i32, reduce_number(name, types, attrs).shape)


def scan(name: str, types: Types, attrs: Attrs) -> TensorType:
    _want(name, "x", types[0], NUMBERS)
    _rank(name, "x", types[0], 1)
    return types[0]


def _per_row(name: str, arg: str, x: TensorType, got: TensorType, dtypes: Sequence[DType]) -> None:
    _want(name, "x", x, (DType.f32,))
    _rank(name, "x", x, 1, 2)
    _want(name, arg, got, dtypes)
    rows = x.shape[:-1] or (1,)
    if got.shape not in ((), rows):
        raise RuleError(
            f"`{name}` got `{arg}` of shape {_shape(got.shape)} for {rows[0]} rows; "
            f"it takes () or {_shape(rows)}"
        )


def threshold(name: str, types: Types, attrs: Attrs) -> TensorType:
    _per_row(name, "t" if name == "prob_ge" else "p", types[0], types[1], (DType.f32,))
    return TensorType(DType.bool_, types[0].shape)


def rank(name: str, types: Types, attrs: Attrs) -> TensorType:
    _per_row(name, "k", types[0], types[1], INTEGERS)
    return TensorType(DType.bool_, types[0].shape)


def entropy(name: str, types: Types, attrs: Attrs) -> TensorType:
    for arg, got in zip(("p", "lp"), types, strict=False):
        _want(name, arg, got, (DType.f32,))
        _rank(name, arg, got, 1)
    if types[0].shape != types[-1].shape:
        raise _shape_error(name, types[0].shape, types[-1].shape)
    return TensorType(DType.f32, types[0].shape[:-1])


def top_k(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, k = types[0], attrs["k"]
    _want("top_k", "x", x, (DType.f32,))
    _rank("top_k", "x", x, 1, 2)
    if not 1 <= k <= x.shape[-1]:
        raise RuleError(f"`top_k` got k = {k} for rows of {x.shape[-1]}; it takes 1 to the length")
    return TensorType(DType.u32, (*x.shape[:-1], k))


def pick(name: str, types: Types, attrs: Attrs) -> TensorType:
    x, idx = types
    _value(name, "x", x)
    _want(name, "idx", idx, INTEGERS)
    _rank(name, "x", x, 1)
    if idx.shape[:-1] != x.shape[:-1] or len(idx.shape) != len(x.shape):
        raise RuleError(f"`pick` got shapes {_shape(x.shape)} and {_shape(idx.shape)}")
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
    _want(name, "logits", logits, (DType.f32,))
    _rank(name, "logits", logits, 1)
    _state(name, state)
    return TensorType(DType.i32, logits.shape[:-1])


def nucleus(name: str, types: Types, attrs: Attrs) -> TensorType:
    logits, top_p, state = types
    _per_row(name, "top_p", logits, top_p, (DType.f32,))
    return gumbel_max(name, (logits, state), attrs)


def masked_argmax(name: str, types: Types, attrs: Attrs) -> TensorType:
    _rank(name, "logits", types[0], 1)
    return TensorType(DType.i32, mask_apply(name, types, attrs).shape[:-1])


def gather(name: str, types: Types, attrs: Attrs) -> TensorType:
    src, idx = types
    _value(name, "src", src)
    _rank(name, "src", src, 1)
    _want(name, "idx", idx, INTEGERS)
    return TensorType(src.dtype, idx.shape + src.shape[1:])


def gather_row(name: str, types: Types, attrs: Attrs) -> TensorType:
    src, idx = types
    _value(name, "src", src)
    _rank(name, "src", src, 2, 2)
    _want(name, "idx", idx, INTEGERS)
    if idx.shape != src.shape[:1]:
        raise RuleError(
            f"`gather_row` got {_shape(idx.shape)} indices for {src.shape[0]} rows; "
            "it takes one index for each row"
        )
    return TensorType(src.dtype, idx.shape)


def scatter(name: str, types: Types, attrs: Attrs) -> TensorType:
    base, idx, vals = types
    _value(name, "base", base)
    _rank(name, "base", base, 1)
    _want(name, "idx", idx, INTEGERS)
    _rank(name, "idx", idx, 1, 1)
    _one_dtype(name, base, vals)
    whole = idx.shape + base.shape[1:]
    if vals.shape not in ((), whole):
        raise RuleError(
            f"`{name}` got values of shape {_shape(vals.shape)}; it takes {_shape(whole)} or ()"
        )
    return base


def scatter_add(name: str, types: Types, attrs: Attrs) -> TensorType:
    _want(name, "base", types[0], NUMBERS)
    return scatter(name, types, attrs)


def position_mask(name: str, types: Types, attrs: Attrs) -> TensorType:
    pos, length = types[0], attrs["length"]
    _want(name, "pos", pos, (DType.u32,))
    _rank(name, "pos", pos, 0, 3)
    if length < 1:
        raise RuleError(f"`{name}` got length = {length}; it takes at least 1")
    return TensorType(DType.bool_, (*pos.shape, length))
