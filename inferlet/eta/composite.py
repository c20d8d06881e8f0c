"""Operations whose user-level form is more than one row of the op table, or takes host values."""

import builtins
from dataclasses import dataclass
from typing import Any

from inferlet import naming
from inferlet.dtypes import DType
from inferlet.eta import literals
from inferlet.eta.tensor import Tensor
from inferlet.eta.trace import active_stage, dtype_argument, fail, int_argument, record


@dataclass(frozen=True)
class Predicate:
    """A condition of `pivot_threshold`."""

    name: str
    value: Any


def constant(v: Any, dtype: DType | None = None) -> Tensor:
    """A scalar, nested list or array as a tensor; at most 65,536 elements."""
    stage = active_stage("`constant`")
    if isinstance(v, Tensor):
        fail("`constant` got a tensor", "a tensor already is a device value; use it as it is")
    target = None if dtype is None else dtype_argument("constant", dtype)
    try:
        data = literals.array(v, target)
    except literals.LiteralError as error:
        fail(f"`constant`: {error}")
    made = next(key for key, kind in literals.NUMPY.items() if kind == data.dtype)
    return stage.constant(data, made)


def abs(x: Any) -> Any:
    """Absolute value; of a Python number the builtin's."""
    return record("abs", x) if isinstance(x, Tensor) else builtins.abs(x)


def mm(w: Any, e: Tensor) -> Tensor:
    """`e @ w^T`. `w` is a tensor, or a channel, which is read; bf16 and f16 are cast."""
    if not isinstance(w, Tensor) and hasattr(w, "read"):
        w = active_stage("`mm`").read(w)
    return record("mm", w, e)


def indptr(rows: int, run_len: Any) -> Tensor:
    """u32 `[rows+1]`: `i * run_len`, wrapping. `run_len` is an int or a u32 `()` or `[1]`."""
    return record("indptr", run_len, rows=int_argument("indptr", "rows", rows))


def cummass_le(x: Any, p: Any = None) -> Any:
    """Keep i iff the mass ranked strictly before i is < p. With one argument: the predicate."""
    return Predicate("cummass_le", x) if p is None else record("cummass_le", x, p)


def rank_le(x: Any, k: Any = None) -> Any:
    """Keep i iff fewer than k elements of its row are strictly greater. With one argument: the
    predicate."""
    return Predicate("rank_le", x) if k is None else record("rank_le", x, k)


def prob_ge(x: Any, t: Any = None) -> Any:
    """`x[i] >= t`. With one argument: the predicate."""
    return Predicate("prob_ge", x) if t is None else record("prob_ge", x, t)


def pivot_threshold(x: Any, pred: Predicate) -> Tensor:
    """`pred` is one of `cummass_le(p)`, `rank_le(k)`, `prob_ge(t)`."""
    if not isinstance(pred, Predicate):
        fail(
            f"`pivot_threshold` got a {naming.kind(pred)} for `pred`",
            "write `cummass_le(p)`, `rank_le(k)` or `prob_ge(t)`",
        )
    return record(pred.name, x, pred.value)


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their indices: descending, lower index first, NaN last."""
    indices = record("top_k_indices", x, k=int_argument("top_k", "k", k))
    return record("pick", x, indices), indices


def sort_desc(x: Tensor) -> tuple[Tensor, Tensor]:
    """A whole vector in descending order, and the indices."""
    active_stage("`sort_desc`")
    if not isinstance(x, Tensor) or len(x.shape) != 1:
        fail("`sort_desc` takes a vector", "use `top_k(x, n)` for the rows of a matrix")
    return top_k(x, x.shape[0])
