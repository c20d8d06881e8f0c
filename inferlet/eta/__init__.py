"""The device language: operations, tensors, dtypes and the values that the engine provides."""

from inferlet.dtypes import dtype
from inferlet.eta import intrinsics
from inferlet.eta.ops import *
from inferlet.eta.ops import __all__ as _operations
from inferlet.eta.tensor import Tensor

# Last: channels record with the modules above.
from inferlet.channel import Channel  # isort: skip

__all__ = [  # noqa: PLE0604
    *_operations,
    "Channel",
    "Tensor",
    "dtype",
    "intrinsics",
]
