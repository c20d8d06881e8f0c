"""Elementwise and shape kernels, and the registry of all kernels.

A kernel gets a Call and the operands stacked along a leading instance axis: `[G, *shape]`, or
`[1, *shape]` for a value that all instances share. It gives the result in the same form. u32 is
held as the int32 bit pattern: wrapping arithmetic is the same, order and conversion are not.
An instance's values never depend on G: no kernel lets torch split a row's sum as it likes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipc.types import DType, TensorType

STORAGE: dict[DType, torch.dtype] = {
    DType.f32: torch.float32,
    DType.i32: torch.int32,
    DType.u32: torch.int32,  # bit pattern
    DType.bool_: torch.bool,
    DType.bf16: torch.bfloat16,
    DType.f16: torch.float16,
}

_SIGN_BIT = -(1 << 31)


@dataclass(frozen=True)
class Call:
    """What a kernel knows besides its operands."""

    types: tuple[TensorType, ...]  # of the operands, without the instance axis
    result: TensorType
    attrs: dict[str, Any]
    device: torch.device

    @property
    def on_host(self) -> bool:
        """Whether a look at the data is cheap. Elsewhere it would stall the device."""
        return self.device.type == "cpu"


Kernel = Callable[..., Tensor]
KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Registers a function as the kernel of the ops with these names."""

    def register(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return register


def unsigned(x: Tensor) -> Tensor:
    """int64 values of int32 bit patterns."""
    return x.to(torch.int64) & 0xFFFFFFFF


def widen(x: Tensor, dtype: DType) -> Tensor:
    """int64 values of an i32 or u32 tensor."""
    return unsigned(x) if dtype == DType.u32 else x.to(torch.int64)


def ordered(x: Tensor, dtype: DType) -> Tensor:
    """A tensor whose order is the order of the values. Its own inverse."""
    return x ^ _SIGN_BIT if dtype == DType.u32 else x


def aligned(call: Call, *operands: Tensor) -> list[Tensor]:
    """Operands with scalars given the rank of the result, so that torch's broadcast is ours."""
    rank = len(call.result.shape) + 1
    return [x if x.dim() == rank else x.reshape(-1, *[1] * (rank - 1)) for x in operands]


def together(*operands: Tensor) -> list[Tensor]:
    """Operands with the same instance count; shared values are repeated as views."""
    count = max(x.shape[0] for x in operands)
    return [x.expand(count, *x.shape[1:]) for x in operands]


# -- arithmetic


@kernel("add")
def add(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    return a + b


@kernel("sub")
def sub(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    return a - b


@kernel("mul")
def mul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    return a * b


def _divided(call: Call, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Wide operands, the truncated quotient, and where the divisor is 0."""
    a, b = (widen(x, call.result.dtype) for x in (a, b))
    zero = b == 0
    # torch traps on a zero divisor, and int64 holds -2^31 / -1.
    quotient = torch.div(a, b.masked_fill(zero, 1), rounding_mode="trunc")
    return a, b, quotient, zero


@kernel("div")
def div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    if call.result.dtype == DType.f32:
        return a / b
    _, _, quotient, zero = _divided(call, a, b)
    return quotient.masked_fill(zero, 0).to(torch.int32)


@kernel("rem")
def rem(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    if call.result.dtype == DType.f32:
        return _fmod(call, a, b)
    a, b, quotient, zero = _divided(call, a, b)
    return (a - b * quotient).masked_fill(zero, 0).to(torch.int32)


def _fmod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    if not call.on_host:
        return torch.fmod(a, b)
    # torch's vectorised fmod gives NaN where the quotient is beyond 2^62 or so.
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.fmod(a.numpy(), b.numpy()))


@kernel("abs")
def absolute(call: Call, x: Tensor) -> Tensor:
    if call.result.dtype == DType.u32:
        return x
    return x.abs() if call.result.dtype == DType.f32 else torch.where(x < 0, 0 - x, x)


@kernel("neg")
def neg(call: Call, x: Tensor) -> Tensor:
    return -x


@kernel("sign")
def sign(call: Call, x: Tensor) -> Tensor:
    if call.result.dtype == DType.u32:
        return (x != 0).to(torch.int32)
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@kernel("exp")
def exp(call: Call, x: Tensor) -> Tensor:
    return torch.exp(x)


@kernel("log")
def log(call: Call, x: Tensor) -> Tensor:
    return torch.log(x)


@kernel("cos")
def cos(call: Call, x: Tensor) -> Tensor:
    return torch.cos(x)


@kernel("sin")
def sin(call: Call, x: Tensor) -> Tensor:
    return torch.sin(x)


@kernel("sqrt")
def sqrt(call: Call, x: Tensor) -> Tensor:
    return torch.sqrt(x)


@kernel("rsqrt")
def rsqrt(call: Call, x: Tensor) -> Tensor:
    return 1.0 / torch.sqrt(x)


@kernel("recip")
def recip(call: Call, x: Tensor) -> Tensor:
    return 1.0 / x


@kernel("max_elem")
def max_elem(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    dtype = call.result.dtype
    if dtype != DType.f32:
        return ordered(torch.maximum(ordered(a, dtype), ordered(b, dtype)), dtype)
    # The sum of two zeros is -0 only when both are.
    return torch.where((a == 0) & (b == 0), a + b, torch.fmax(a, b))


@kernel("min_elem")
def min_elem(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    dtype = call.result.dtype
    if dtype != DType.f32:
        return ordered(torch.minimum(ordered(a, dtype), ordered(b, dtype)), dtype)
    return torch.where((a == 0) & (b == 0), -(-a - b), torch.fmin(a, b))


# -- comparison and logic


def _compare(name: str, compare: Callable[[Tensor, Tensor], Tensor]) -> None:
    def run(call: Call, a: Tensor, b: Tensor) -> Tensor:
        a, b = aligned(call, a, b)
        dtype = call.types[0].dtype
        return compare(ordered(a, dtype), ordered(b, dtype))

    KERNELS[name] = run


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(_name, getattr(torch, _name))


@kernel("and_")
def and_(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    return a & b


@kernel("or_")
def or_(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = aligned(call, a, b)
    return a | b


@kernel("not_")
def not_(call: Call, x: Tensor) -> Tensor:
    return ~x


@kernel("select")
def select(call: Call, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(*aligned(call, c, a, b))


@kernel("mask_apply")
def mask_apply(call: Call, x: Tensor, m: Tensor) -> Tensor:
    return masked(call, x, m)


def masked(call: Call, x: Tensor, m: Tensor) -> Tensor:
    """x where m allows it, else -inf; m is bool or packed words."""
    if call.types[1].dtype == DType.u32:
        m = unpacked(m, x.shape[-1])
    rank = max(x.dim(), m.dim())
    x, m = (t if t.dim() == rank else t.reshape(-1, *[1] * (rank - 1)) for t in (x, m))
    return torch.where(m, x, -math.inf)


def unpacked(words: Tensor, length: int) -> Tensor:
    """bool `[.., length]` of packed words `[.., ceil(length/32)]`, least significant bit first."""
    octets = words.contiguous().view(torch.uint8).flatten().int()
    bits = bits_of_octets(words.device).index_select(0, octets).view(torch.bool)
    return bits.view(*words.shape[:-1], 32 * words.shape[-1])[..., :length]


@cache
def bits_of_octets(device: torch.device) -> Tensor:
    """int64 `[256]`: the eight bits of each octet, a byte each. One look-up makes eight bools."""
    bits = torch.arange(256).unsqueeze(1) >> torch.arange(8) & 1
    return bits.to(torch.uint8).view(torch.int64).flatten().to(device)


# -- shape


@kernel("reshape")
def reshape(call: Call, x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], *call.result.shape)


@kernel("broadcast")
def broadcast(call: Call, x: Tensor) -> Tensor:
    shape = call.result.shape
    return x.reshape(*x.shape, *[1] * (len(shape) + 1 - x.dim())).expand(-1, *shape)


@kernel("transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.transpose(1, 2)


@kernel("cast")
def cast(call: Call, x: Tensor) -> Tensor:
    source, target = call.types[0].dtype, call.result.dtype
    if target == DType.bool_:
        return x != 0
    if target == DType.f32:
        return (unsigned(x) if source == DType.u32 else x).to(torch.float32)
    return _saturated(x, target) if source == DType.f32 else x.to(torch.int32)


def _saturated(x: Tensor, target: DType) -> Tensor:
    low, high = (0, (1 << 32) - 1) if target == DType.u32 else (_SIGN_BIT, (1 << 31) - 1)
    # f64 holds both bounds exactly; f32 would round the upper one up.
    wide = x.to(torch.float64).masked_fill(torch.isnan(x), 0.0)
    return wide.clamp(low, high).to(torch.int64).to(torch.int32)


@kernel("iota")
def iota(call: Call) -> Tensor:
    return torch.arange(call.attrs["n"], dtype=torch.int32, device=call.device).unsqueeze(0)


@kernel("indptr")
def indptr(call: Call, run_len: Tensor) -> Tensor:
    steps = torch.arange(call.attrs["rows"] + 1, dtype=torch.int32, device=call.device)
    return steps * run_len.reshape(-1, 1)
