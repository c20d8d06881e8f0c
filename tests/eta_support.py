"""Conformance vectors and small stages for the tests of the eta language. No torch."""

import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferlet import eta
from inferlet.eta.trace import Traced, current_stage, trace
from inferlet.testing.definitions import NUMPY
from ipc.types import DType, TensorType

VECTORS = json.loads((Path(__file__).parent / "golden/vectors.json").read_text())

# The contract allows packed words (15.2); these two cases say that they raise.
CONTRADICTED = ("mask_apply/err-packed-words", "masked_argmax/err-packed-words")
OP_VECTORS = [case for case in VECTORS["ops"] if case["id"] not in CONTRADICTED]

_OPERATORS = {
    "+": (operator.add, operator.pos), "-": (operator.sub, operator.neg), "*": (operator.mul,),
    "/": (operator.truediv,), "//": (operator.floordiv,), "%": (operator.mod,),
    "&": (operator.and_,), "|": (operator.or_,), "~": (None, operator.invert),
    "<": (operator.lt,), "<=": (operator.le,), ">": (operator.gt,), ">=": (operator.ge,),
    "==": (operator.eq,), "!=": (operator.ne,), "abs": (None, abs), "bool": (None, bool),
}  # fmt: skip


@dataclass(eq=False)
class FakeChannel:
    """What the tracer needs of a channel, with the cell at its front."""

    dtype: DType
    shape: tuple[int, ...]
    name: str = "channel"
    front: np.ndarray | None = None

    @classmethod
    def of(cls, front: Any, name: str = "channel") -> "FakeChannel":
        front = np.asarray(front)
        dtype = next(key for key, kind in NUMPY.items() if kind == front.dtype)
        return cls(dtype, front.shape, name, front)

    def take(self) -> eta.Tensor:
        return current_stage().take(self)

    def read(self) -> eta.Tensor:
        return current_stage().read(self)

    def put(self, value: Any) -> None:
        current_stage().put(self, value)


def logits_of(width: int) -> Callable[[int, str], TensorType]:
    """Output types of a model with one row read out of each lane."""
    return lambda lane, name: TensorType(DType.f32, (width,))


def traced(
    function: Callable[[], Any], kind: str = "epilogue", width: int = 8, label: str = ""
) -> Traced:
    return trace(
        function, kind=kind, label=label or f"{kind} of pass 1", output_type=logits_of(width)
    )


def slot_types(stage: Traced) -> list[TensorType]:
    return [TensorType(channel.dtype, channel.shape) for channel in stage.channels]


def array(tensor: dict[str, Any]) -> np.ndarray:
    """A tensor of the vectors. bf16 is kept as bits."""
    values = [float(x) if isinstance(x, str) else x for x in tensor["data"]]
    if tensor["dtype"] == "bf16":
        flat = (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        flat = np.array(values, NUMPY[DType.from_name(tensor["dtype"])])
    return flat.reshape(tensor["shape"])


def stage_of(case: dict[str, Any]) -> Callable[[], Any]:
    """A stage that applies the op of a vector to seeded channels."""

    def operand(value: Any) -> Any:
        if isinstance(value, dict) and "predicate" in value:
            return getattr(eta, value["predicate"])(operand(value["value"]))
        if isinstance(value, dict):
            return FakeChannel.of(array(value)).read()
        return value

    def attribute(value: Any) -> Any:
        # constant's dtype is a name, every other attribute is itself
        return DType.from_name(value) if isinstance(value, str) else value

    def stage() -> Any:
        args = [operand(value) for value in case["args"]]
        if case["op"] == "operator":
            return _OPERATORS[case["attrs"]["symbol"]][len(args) == 1](*args)
        return getattr(eta, case["op"])(*args, *map(attribute, case["attrs"].values()))

    return stage


def disagreements(case: dict[str, Any], results: list[np.ndarray]) -> list[str]:
    """How results differ from a vector's expectation."""
    wanted = [array(tensor) for tensor in case["expect"]]
    if len(results) != len(wanted):
        return [f"{len(results)} results instead of {len(wanted)}"]
    found = []
    for got, want in zip(results, wanted, strict=True):
        if got.dtype != want.dtype or got.shape != want.shape:
            found.append(f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}")
        elif not agree(got, want, case["tol"] == "exact" or "pinned" in case, case.get("atol")):
            found.append(f"got {got.tolist()}, want {want.tolist()}")
    return found


def agree(got: np.ndarray, want: np.ndarray, exact: bool, atol: float | None = None) -> bool:
    """Equal by the rules of the vectors: any NaN equals any NaN, the sign of zero counts when exact."""
    if want.dtype.kind != "f":
        return bool((got == want).all())
    both_nan = np.isnan(got) & np.isnan(want)
    if exact:
        same = (got == want) & (np.signbit(got) == np.signbit(want))
    else:
        near = np.maximum(VECTORS["atol"] if atol is None else atol, VECTORS["rtol"] * np.abs(want))
        with np.errstate(invalid="ignore"):
            same = (got == want) | (np.abs(got.astype(np.float64) - want) <= near)
    return bool((same | both_nan).all())


def is_error(case: dict[str, Any]) -> bool:
    return isinstance(case["expect"], dict)


def mass_is_close(values: np.ndarray, p: float) -> bool:
    """Whether a ranked prefix sum lies within 1e-6 of p, where either answer conforms."""
    ranked = np.sort(values[~np.isnan(values)].astype(np.float64))[::-1]
    sums = np.concatenate(([0.0], ranked.cumsum()))
    return any(math.isclose(total, p, abs_tol=2e-6) for total in sums)
