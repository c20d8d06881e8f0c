"""The value that a stage returns: which tensors it holds, and how to rebuild it from arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferlet.eta import literals
from inferlet.eta.tensor import Tensor

Rebuild = Callable[[Sequence[np.ndarray]], Any]


@dataclass(frozen=True)
class Result:
    tensors: list[Tensor]
    rebuild: Rebuild
    structure: Any  # as `ipc.eta.identity` writes it


def plan(returned: Any, own: Callable[[Any], Tensor]) -> Result:
    """Splits `returned` into tensors and structure. `own` refuses what may not be returned."""
    tensors: list[Tensor] = []
    build, structure = _plan(returned, own, tensors)
    return Result(tensors, build, structure)


def _plan(value: Any, own: Callable[[Any], Tensor], tensors: list[Tensor]) -> tuple[Rebuild, Any]:
    if value is None:
        return (lambda arrays: None), None
    if isinstance(value, str) or literals.is_scalar(value):
        return (lambda arrays: value), "literal"
    if isinstance(value, dict):
        items = {key: _plan(item, own, tensors) for key, item in value.items()}
        structure = ("dict", tuple((key, made) for key, (_, made) in items.items()))
        return (lambda arrays: {key: build(arrays) for key, (build, _) in items.items()}), structure
    if isinstance(value, (list, tuple)):
        parts = [_plan(item, own, tensors) for item in value]
        kind = list if isinstance(value, list) else tuple
        structure = (kind.__name__, tuple(made for _, made in parts))
        return (lambda arrays: kind(build(arrays) for build, _ in parts)), structure
    index = _index(own(value), tensors)
    return (lambda arrays: _leaf(arrays[index])), index


def _index(tensor: Tensor, tensors: list[Tensor]) -> int:
    # A tensor that is returned twice travels once.
    for index, other in enumerate(tensors):
        if other.node == tensor.node:
            return index
    tensors.append(tensor)
    return len(tensors) - 1


def _leaf(array: np.ndarray) -> Any:
    return array.item() if array.size == 1 else array
