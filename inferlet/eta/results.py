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


def plan(returned: Any, own: Callable[[Any], Tensor]) -> Result:
    """Splits `returned` into tensors and structure. `own` refuses what may not be returned."""
    tensors: list[Tensor] = []
    build = _plan(returned, own, tensors)
    return Result(tensors, build)


def _plan(value: Any, own: Callable[[Any], Tensor], tensors: list[Tensor]) -> Rebuild:
    if value is None or isinstance(value, str) or literals.is_scalar(value):
        return lambda arrays: value
    if isinstance(value, dict):
        items = {key: _plan(item, own, tensors) for key, item in value.items()}
        return lambda arrays: {key: build(arrays) for key, build in items.items()}
    if isinstance(value, (list, tuple)):
        builds = [_plan(item, own, tensors) for item in value]
        kind = list if isinstance(value, list) else tuple
        return lambda arrays: kind(build(arrays) for build in builds)
    index = _index(own(value), tensors)
    return lambda arrays: _leaf(arrays[index])


def _index(tensor: Tensor, tensors: list[Tensor]) -> int:
    # A tensor that is returned twice travels once.
    for index, other in enumerate(tensors):
        if other.node == tensor.node:
            return index
    tensors.append(tensor)
    return len(tensors) - 1


def _leaf(array: np.ndarray) -> Any:
    return array.item() if array.size == 1 else array
