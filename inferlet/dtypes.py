"""The `dtype` namespace: `dtype.f32` and its siblings."""

from ipc.types import DType


class dtype:
    """Element types of tensors and channels. `bf16` and `f16` exist in channels only."""

    f32 = DType.f32
    i32 = DType.i32
    u32 = DType.u32
    bool = DType.bool_
    bf16 = DType.bf16
    f16 = DType.f16


def as_dtype(value: object) -> DType:
    """The dtype that a user's argument names; TypeError for anything else."""
    if isinstance(value, DType):
        return value
    raise TypeError(f"{value!r} is not a dtype; use dtype.f32, .i32, .u32, .bool, .bf16 or .f16")
