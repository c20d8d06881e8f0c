"""The device language: operations, tensors, dtypes and the values that the engine provides."""

from inferlet.dtypes import dtype
from inferlet.eta import intrinsics
from inferlet.eta.ops import *
from inferlet.eta.ops import __all__ as _operations
from inferlet.eta.tensor import Tensor

__all__ = [  # noqa: PLE0604
    *_operations,
    "Tensor",
    "dtype",
    "intrinsics",
]
