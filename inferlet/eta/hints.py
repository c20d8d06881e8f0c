"""Words for values that are not what a stage takes, and what to write instead."""

from typing import Any

import numpy as np

from inferlet.eta import literals
from ipc.eta import fit
from ipc.types import DType

RESULT = "the result"  # of a stage, as messages name it


def channel_name(channel: Any) -> str:
    return f"channel {channel.name!r}"


def cast_hint(target: DType) -> str:
    if target in fit.HALVES:
        return f"a {target.label} channel is filled by the host only: make the channel f32"
    return f"write `cast(x, dtype.{target.label})`"


def not_a_tensor(value: Any, what: str) -> str:
    if literals.is_scalar(value):
        return f"{what} got the number {value!r} where it takes a tensor"
    return f"{what} got a value of type {type(value).__name__} where it takes a tensor"


def tensor_hint(value: Any, what: str) -> str:
    if what == RESULT:
        return "a stage returns tensors, numbers and strings, in lists, tuples and dicts"
    if literals.is_scalar(value):
        return "write `constant([…])` for a row of numbers"
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
