"""Host values that become constants: Python numbers, nested lists, numpy arrays.
Owns the rules for their dtype and range; refuses half precision, which only channels hold.
"""

from typing import Any

import numpy as np

from ipc.types import DType

NUMPY = {DType.f32: np.float32, DType.i32: np.int32, DType.u32: np.uint32, DType.bool_: np.bool_}
_RANGES = {
    DType.f32: (-(1 << 128) + 1, (1 << 128) - 1),
    DType.i32: (-(1 << 31), (1 << 31) - 1),
    DType.u32: (0, (1 << 32) - 1),
}
_FROM_NUMPY = {"b": DType.bool_, "f": DType.f32, "i": DType.i32, "u": DType.u32}


class LiteralError(Exception):
    """A host value does not fit; the message is a whole sentence about the value."""


def is_scalar(value: object) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )


def kind_of(value: Any) -> str:
    """`b`, `i` or `f` for a scalar."""
    kind = np.asarray(value).dtype.kind if not isinstance(value, int) else "i"
    if isinstance(value, bool):
        return "b"
    return "i" if kind == "u" else kind


def common_dtype(values: list[Any]) -> DType:
    """dtype of literals among themselves: all bool gives bool, any float gives f32, else i32."""
    kinds = {kind_of(value) for value in values}
    if "f" in kinds:
        return DType.f32
    return DType.bool_ if kinds == {"b"} else DType.i32


def scalar(value: Any, dtype: DType) -> np.ndarray:
    """A number as a `()` array of `dtype`; LiteralError when it does not fit."""
    kind = kind_of(value)
    if kind == "f" and dtype != DType.f32:
        raise LiteralError(f"the float {value!r} meets {dtype.with_article} tensor")
    if kind == "b" and dtype != DType.bool_:
        raise LiteralError(f"the bool {value!r} meets {dtype.with_article} tensor")
    if kind == "i" and dtype == DType.bool_:
        raise LiteralError(f"the int {value!r} meets a bool tensor")
    return _checked(np.asarray(value), kind, dtype)


def array(values: Any, dtype: DType | None) -> np.ndarray:
    """A scalar, nested list or array by the rules of `Channel.from_`."""
    data, kind = _as_array(values)
    if data.size == 0:
        raise LiteralError("the values are empty; every extent is at least 1")
    if dtype is None:
        # Whole-array rule: numpy arrays keep their own dtype, 64-bit kinds become 32-bit ones.
        own = isinstance(values, (np.ndarray, np.generic))
        dtype = _FROM_NUMPY[data.dtype.kind] if own else _FROM_NUMPY[kind]
    if kind == "f" and dtype != DType.f32:
        raise LiteralError(f"floats do not fit {dtype.label}")
    if (kind == "b") != (dtype == DType.bool_):
        raise LiteralError(f"{'bools' if kind == 'b' else 'numbers'} do not fit {dtype.label}")
    return _checked(data, kind, dtype)


def _as_array(values: Any) -> tuple[np.ndarray, str]:
    try:
        data = np.asarray(values)
    except (ValueError, OverflowError):
        raise LiteralError("the nesting is ragged") from None
    kind = data.dtype.kind
    if kind == "O" and _all_ints(data):
        return data, "i"  # beyond 64 bits: the range check names the number
    if kind not in "biuf":
        raise LiteralError(f"values of type {data.dtype} have no dtype on the device")
    if isinstance(values, (list, tuple)) and kind != "b" and _has_bool(values):
        raise LiteralError("bools and numbers are mixed")
    return data, "i" if kind == "u" else kind


def _all_ints(data: np.ndarray) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in data.flat)


def _has_bool(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(_has_bool(value) for value in values)
    return isinstance(values, (bool, np.bool_))


def _checked(data: np.ndarray, kind: str, dtype: DType) -> np.ndarray:
    if kind == "i" and dtype in _RANGES:
        low, high = _RANGES[dtype]
        for number in (int(data.min()), int(data.max())):
            if not low <= number <= high:
                raise LiteralError(f"the int {number} does not fit {dtype.label}")
    if dtype not in NUMPY:
        raise LiteralError(f"{dtype.label} constants do not exist; seed a channel")
    with np.errstate(over="ignore"):
        return np.array(data.tolist() if data.dtype == object else data).astype(NUMPY[dtype])
