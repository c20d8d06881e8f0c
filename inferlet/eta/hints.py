"""Words for values that are not what a stage takes, and what to write instead."""

import difflib
import inspect
from typing import Any

import numpy as np

from inferlet import naming
from inferlet.eta import literals
from inferlet.eta.tensor import Tensor
from ipc.eta import fit
from ipc.types import DType

#: What other libraries call what tensors have no method for.
_ELSEWHERE = {
    "argmax": "reduce_argmax(x)", "max": "reduce_max(x)", "min": "reduce_min(x)",
    "amax": "reduce_max(x)", "amin": "reduce_min(x)",
    "sum": "reduce_sum(x)", "mean": "reduce_sum(x) / n", "T": "transpose(x)", "t": "transpose(x)",
    "topk": "top_k(x, k)", "sort": "sort_desc(x)", "argsort": "sort_desc(x)",
    "view": "reshape(x, shape)", "flatten": "reshape(x, n)", "squeeze": "reshape(x, shape)",
    "unsqueeze": "reshape(x, shape)", "expand": "broadcast(x, shape)", "where": "select(c, a, b)",
    "astype": "cast(x, dtype.f32)", "to": "cast(x, dtype.f32)", "float": "cast(x, dtype.f32)",
    "int": "cast(x, dtype.i32)", "long": "cast(x, dtype.i32)", "bool": "cast(x, dtype.bool)",
    "masked_fill": "mask_apply(x, m)", "multinomial": "gumbel_max(logits, state)",
    "pow": "exp(y * log(x))", "square": "x * x", "ndim": "len(t.shape)", "size": "t.shape",
}  # fmt: skip
_ON_HOST = ("item", "tolist", "numpy", "cpu", "detach")

RESULT = "the result"  # of a stage, as messages name it


def channel_name(channel: Any) -> str:
    return f"channel {channel.name!r}"


def cast_hint(target: DType, made: DType) -> str:
    """For a tensor of dtype `made` that is put on a channel of `target`: either may be meant."""
    if target in fit.HALVES:
        return f"{target.with_article} channel is filled by the host only: make the channel f32"
    cast = f"write `cast(x, dtype.{target.label})`"
    is_same_kind = (target in fit.INTEGERS) == (made in fit.INTEGERS)
    if is_same_kind or DType.bool_ in (target, made):
        return cast
    holds = "tokens and indices" if made in fit.INTEGERS else "fractions"
    return f"a channel of {holds} is {made.label}: make it with `dtype.{made.label}`, or {cast}"


def not_a_tensor(value: Any, what: str) -> str:
    if literals.is_scalar(value):
        return f"{what} got the number {value!r} where it takes a tensor"
    if tensors := num_tensors(value):
        of = f"{tensors} tensor{'s' if tensors > 1 else ''}"
        return f"{what} got a {type(value).__name__} of {of} where it takes one tensor"
    if said := naming.forgotten(value):
        return f"{what} got {said} where it takes a tensor"
    return f"{what} got a value of type {type(value).__name__} where it takes a tensor"


def num_tensors(value: Any) -> int:
    """How many tensors a list or tuple holds that holds nothing else."""
    if not isinstance(value, list | tuple):
        return 0
    return len(value) if all(isinstance(each, Tensor) for each in value) else 0


def tensor_hint(value: Any, what: str) -> str:
    if what == RESULT:
        return "a stage returns tensors, numbers and strings, in lists, tuples and dicts"
    if literals.is_scalar(value):
        return "write `constant([…])` for a row of numbers"
    if num_tensors(value) == 2 and isinstance(value, tuple):
        return (
            "take one of them: `top_k` and `sort_desc` give values and indices, "
            "`values, indices = top_k(x, k)`"
        )
    if num_tensors(value):
        return "take one of them"
    if naming.forgotten(value):
        return "await it on the host, and `put` it on a channel that the stage takes"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "write `constant(values)`"
    if hasattr(value, "take") and hasattr(value, "put"):
        return "write `.take()` or `.read()` after the channel"
    return ""


def literal_hint(value: Any, dtype: DType) -> str:
    match literals.kind_of(value):
        case "f":
            return "write `cast(x, dtype.f32)` for the tensor, or an int for the number"
        case "b":
            return f"write {int(value)} for the number, or `cast(x, dtype.bool)` for the tensor"
    return f"the number must be {'True or False' if dtype == DType.bool_ else 'in range'}"


def attribute_hint(name: str) -> str:
    """For an attribute that tensors do not have."""
    from inferlet.eta import ops

    if name in ops.__all__:
        arguments = ", ".join(inspect.signature(getattr(ops, name)).parameters)
        return f"write `{name}({arguments})`"
    if name in _ELSEWHERE:
        return f"write `{_ELSEWHERE[name]}`"
    if name in _ON_HOST:
        return "return it from the stage, or `put` it on a channel that the host takes"
    if close := difflib.get_close_matches(name, [*ops.__all__, "shape", "dtype"], 1, 0.6):
        return f"did you mean `{close[0]}`? operations are functions: `exp(x)`"
    return "a tensor has `.shape`, `.dtype` and `.reshape`; operations are functions: `exp(x)`"
