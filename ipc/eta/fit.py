"""What shape and dtype rules ask of operands, and the errors that say how to repair them."""

from collections.abc import Sequence
from math import prod

from ipc.types import DType, TensorType

MAX_RANK = 4
NUMBERS = (DType.f32, DType.i32, DType.u32)
INTEGERS = (DType.i32, DType.u32)
HALVES = (DType.bf16, DType.f16)

Types = Sequence[TensorType]


class RuleError(Exception):
    """Shapes or dtypes do not fit the op."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def shape_text(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if shape else "()"


def want(name: str, arg: str, got: TensorType, accepted: Sequence[DType]) -> None:
    if got.dtype in accepted:
        return
    names = ", ".join(dtype.label for dtype in accepted)
    what = f"`{name}` got {got.dtype.with_article} tensor for `{arg}`; it takes {names}"
    if got.dtype in HALVES:
        raise RuleError(what, f"write `cast({arg}, dtype.f32)` first")
    target = accepted[0].label
    raise RuleError(what, f"write `cast({arg}, dtype.{target})`")


def want_rank(name: str, arg: str, got: TensorType, low: int, high: int = MAX_RANK) -> None:
    if low <= len(got.shape) <= high:
        return
    ranks = str(low) if low == high else f"{low} to {high}"
    what = f"`{name}` got shape {shape_text(got.shape)} for `{arg}`; it takes rank {ranks}"
    raise RuleError(what, f"`reshape` gives `{arg}` another rank")


def want_one_dtype(name: str, a: TensorType, b: TensorType) -> None:
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
    if broadcasts(small, large):
        return f"broadcast(x, {list(large)})"
    padded = (1,) * (len(large) - len(small)) + small
    if broadcasts(padded, large):
        return f"broadcast(reshape(x, {list(padded)}), {list(large)})"
    return ""


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) > len(target):
        return False
    return all(extent in (1, target[axis]) for axis, extent in enumerate(shape))


def elementwise_shape(name: str, types: Types) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for other in types:
        if not other.shape or other.shape == shape:
            continue
        if shape:
            raise shape_error(name, shape, other.shape)
        shape = other.shape
    return shape


def shape_error(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> RuleError:
    what = (
        f"`{name}` got shapes {shape_text(a)} and {shape_text(b)}; they must be equal, or one be ()"
    )
    for small, large in ((a, b), (b, a)):
        if text := repair(small, large):
            return RuleError(what, f"write `{text}` for the operand of shape {shape_text(small)}")
    return RuleError(what, "use `broadcast` or `reshape` so that the element counts agree")


def want_value(name: str, arg: str, got: TensorType) -> None:
    """Refuses the half dtypes, whose one operation is `cast`."""
    want(name, arg, got, (DType.f32, DType.i32, DType.u32, DType.bool_))
