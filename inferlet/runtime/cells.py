"""Host values as cells: what fits a channel's dtype and shape, and the bytes on the wire."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from inferlet import naming
from inferlet.errors import with_hint
from ipc.types import DType, TensorType

NUMPY = {
    DType.f32: np.dtype("<f4"), DType.i32: np.dtype("<i4"), DType.u32: np.dtype("<u4"),
    DType.bool_: np.dtype("?"), DType.f16: np.dtype("<f2"),
    DType.bf16: np.dtype("<u2"),  # numpy has no bfloat16: its bits
}  # fmt: skip
_RANGES = {DType.i32: (-(2**31), 2**31 - 1), DType.u32: (0, 2**32 - 1)}
_FLOATS = (DType.f32, DType.f16, DType.bf16)
MAX_RANK = 4
_BY_NUMPY = {
    "bool": DType.bool_, "int32": DType.i32, "int64": DType.i32, "uint32": DType.u32,
    "float32": DType.f32, "float64": DType.f32, "float16": DType.f16,
}  # fmt: skip


def integer(value: Any, what: str) -> int:
    """An int, or a numpy integer; TypeError otherwise."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} is {value!r}; it takes an int")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {naming.shown(value)}; it takes an int") from None


def integers(values: Any, what: str) -> list[int]:
    """A token sequence, or other row of ints: any sequence, or a 1-D integer array."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise TypeError(f"{what} is a {values.ndim}-D {values.dtype} array; 1-D integers fit")
        return values.tolist()
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what} is {naming.kind(values)}; it takes a sequence of ints")
    try:
        taken = list(values)
        if any(value is True or value is False for value in taken):
            raise TypeError
        return list(map(operator.index, taken))
    except TypeError:
        raise TypeError(f"{what} is {naming.shown(values)}; it takes a sequence of ints") from None


def bools(values: Any, what: str) -> np.ndarray:
    """Rows of bools, or of 0 and 1: a copy."""
    array = _array(values, what)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{what} has shape {list(array.shape)}; it takes rows of bools")
    if array.dtype.kind != "b" and not (array.dtype.kind in "iu" and np.isin(array, (0, 1)).all()):
        raise TypeError(f"{what} holds values of type {array.dtype}; it takes bools")
    return array.astype(np.bool_)


def shape_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A cell's shape from an int or a sequence of ints."""
    is_sequence = isinstance(shape, (Sequence, np.ndarray))
    extents = integers(shape, "shape") if is_sequence else [integer(shape, "shape")]
    if len(extents) > MAX_RANK:
        raise ValueError(
            with_hint(
                f"shape {extents} has rank {len(extents)}; at most {MAX_RANK}",
                "join extents: a stage can `reshape` what it takes",
            )
        )
    if any(extent < 1 for extent in extents):
        raise ValueError(
            with_hint(
                f"shape {extents}: every extent is at least 1", "write `()` or 1 for one element"
            )
        )
    return tuple(extents)


def infer(values: Any, dtype: DType | None, what: str) -> tuple[np.ndarray, DType]:
    """Shape and dtype of the cell that `values` make. ValueError when they are empty or ragged."""
    array = _array(values, what)
    if array.size == 0:
        raise ValueError(
            with_hint(
                f"{what} are empty", "give a first cell, or write `Channel(shape, dtype)`"
            )
        )
    shape_of(array.shape)
    return array, dtype or _dtype_of(array, what)


def _dtype_of(array: np.ndarray, what: str) -> DType:
    if array.dtype == object:  # Python ints beyond 64 bits
        return DType.i32
    found = _BY_NUMPY.get(array.dtype.name)
    if found is None:
        raise TypeError(with_hint(f"no dtype for {what} of type {array.dtype}", "give `dtype=`"))
    return found


def _array(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(
            with_hint(f"{what} are ragged", "give rows of one length: fill up the short ones")
        ) from None
    if array.dtype.kind in "biuf":
        return array
    if array.dtype == object and all(isinstance(v, int) for v in array.flat):
        return array  # ints that no numpy integer holds: refused by range, not by type
    if said := naming.forgotten(values):
        raise TypeError(f"{what} are {said}; numbers or bools fit")
    raise TypeError(
        with_hint(
            f"{what} are {naming.kind(values)} of {array.dtype}; numbers or bools fit",
            "give a number, nested lists of numbers, or a numpy array",
        )
    )


def encode(values: Any, cell: TensorType, what: str) -> np.ndarray:
    """`values` as one cell, row-major: a copy. Checks count, kind and range (contract, 10.1)."""
    array = _array(values, f"the values for {what}")
    if array.size != cell.size:
        raise ValueError(
            f"{array.size} elements for {what}, whose cells have {cell.size}: {list(cell.shape)}"
        )
    array = array.reshape(cell.shape)
    kind, dtype = ("i" if array.dtype.kind in "uO" else array.dtype.kind), cell.dtype
    fits = {"b": dtype is DType.bool_, "i": dtype is not DType.bool_, "f": dtype in _FLOATS}[kind]
    if not fits:
        names = {"b": "bools", "i": "ints", "f": "floats"}
        raise TypeError(f"{names[kind]} do not fit {what}, which holds {dtype.label}")
    if dtype in _RANGES:
        _check_range(array, dtype, what)
    if dtype is DType.bf16:
        return _to_bf16(array)
    with np.errstate(over="ignore"):
        return array.astype(NUMPY[dtype])


def _check_range(array: np.ndarray, dtype: DType, what: str) -> None:
    low, high = _RANGES[dtype]
    smallest, largest = int(array.min()), int(array.max())
    if smallest < low or largest > high:
        worst = smallest if smallest < low else largest
        raise ValueError(f"{worst} is out of range for {what}, which holds {dtype.label}")


def _to_bf16(array: np.ndarray) -> np.ndarray:
    """Rounded to nearest even in one step from f32's bits."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = np.isnan(array.astype(np.float64))
    return np.where(is_nan, 0x7FC0, rounded).astype("<u2")


def decode(data: bytes, cell: TensorType) -> np.ndarray:
    """The array of one cell that a stage made: the caller's own, writable."""
    return np.frombuffer(data, NUMPY[cell.dtype]).reshape(cell.shape).copy()
