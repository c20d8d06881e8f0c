"""Kernels that work along the last axis: reductions, scans, thresholds, distributions, products."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ipc.types import DType
from worker.eta import selection
from worker.eta.kernels import Call, kernel, ordered, together, widen

_TINY = 2.0**-126
# One launch for each element of a row; beyond this the library's scan agrees within 1e-5.
_LONGEST_STEPPED_SCAN = 4096


def as_row(call: Call, x: Tensor) -> Tensor:
    """A scalar counts as a row of one element."""
    return x.unsqueeze(-1) if not call.types[0].shape else x


def sum_tree(x: Tensor) -> Tensor:
    """f32 sums of the last axis in the order that the language fixes."""
    while True:
        if missing := -x.shape[-1] % 32:  # a pad of nothing would copy the row
            x = torch.nn.functional.pad(x, (0, missing))
        x = x.unflatten(-1, (-1, 32))
        for width in (16, 8, 4, 2, 1):
            x = x[..., :width] + x[..., width : 2 * width]
        x = x.squeeze(-1)
        if x.shape[-1] == 1:
            return x.squeeze(-1)


def row_max(call: Call, x: Tensor) -> Tensor:
    """Largest number of each f32 row, ignoring NaN. The sign of a zero is not settled."""
    top = x.amax(-1)
    if call.on_host and not torch.isnan(top).any():
        return top
    return x.masked_fill(torch.isnan(x), -math.inf).amax(-1)


@kernel("reduce_max")
def reduce_max(call: Call, x: Tensor) -> Tensor:
    x, dtype = as_row(call, x), call.result.dtype
    if dtype != DType.f32:
        return ordered(ordered(x, dtype).amax(-1), dtype)
    top = row_max(call, x)
    if call.on_host and not (top == 0).any():
        return top
    # Zeros tie, but +0 wins over -0.
    positive = ((x == 0) & ~torch.signbit(x)).any(-1)
    zero = torch.where(positive, 0.0, -0.0)
    return torch.where(top == 0, zero, top)


@kernel("reduce_min")
def reduce_min(call: Call, x: Tensor) -> Tensor:
    if call.result.dtype != DType.f32:
        x, dtype = as_row(call, x), call.result.dtype
        return ordered(ordered(x, dtype).amin(-1), dtype)
    return -reduce_max(call, -x)


@kernel("reduce_sum")
def reduce_sum(call: Call, x: Tensor) -> Tensor:
    x = as_row(call, x)
    if call.result.dtype == DType.f32:
        return sum_tree(x)
    return x.sum(-1, dtype=torch.int64).to(torch.int32)


@kernel("reduce_argmax")
def reduce_argmax(call: Call, x: Tensor) -> Tensor:
    x, dtype = as_row(call, x), call.types[0].dtype
    if dtype != DType.f32:
        return ordered(x, dtype).argmax(-1).to(torch.int32)
    return argmax(call, x).to(torch.int32)


def argmax(call: Call, x: Tensor) -> Tensor:
    """int64 index of the first maximum of each f32 row; NaN is never chosen."""
    if call.on_host:
        # numpy's takes a tenth of the time of torch's; both give the first NaN if there is one.
        best = torch.from_numpy(x.numpy().argmax(-1))
        if not torch.isnan(x.gather(-1, best.unsqueeze(-1))).any():
            return best
    missing = torch.isnan(x)
    best = x.masked_fill(missing, -math.inf).argmax(-1, keepdim=True)
    # A row of -inf and NaN: the masked NaN ties with -inf, so take the first that is a number.
    first_number = missing.to(torch.int8).argmin(-1, keepdim=True)
    return torch.where(missing.gather(-1, best), first_number, best).squeeze(-1)


@kernel("cumsum")
def cumsum(call: Call, x: Tensor) -> Tensor:
    if call.result.dtype != DType.f32:
        return x.cumsum(-1, dtype=torch.int64).to(torch.int32)
    return _scan(call, x, "cumsum", torch.add)


@kernel("cumprod")
def cumprod(call: Call, x: Tensor) -> Tensor:
    if call.result.dtype != DType.f32:
        return x.cumprod(-1, dtype=torch.int64).to(torch.int32)
    return _scan(call, x, "cumprod", torch.mul)


def _scan(call: Call, x: Tensor, name: str, step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    # The language says left to right in f32. torch accumulates in f64 on the host, and in an
    # order of its own on a device.
    if call.on_host:
        with np.errstate(all="ignore"):
            return torch.from_numpy(getattr(np, name)(x.numpy(), axis=-1))
    if x.shape[-1] > _LONGEST_STEPPED_SCAN:
        return getattr(torch, name)(x, -1)
    return torch.stack(list(itertools.accumulate(x.unbind(-1), step)), -1)


@kernel("l2norm")
def l2norm(call: Call, x: Tensor) -> Tensor:
    return x / torch.sqrt(sum_tree(x * x)).unsqueeze(-1)


@kernel("softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    return probabilities(call, x)


def probabilities(call: Call, x: Tensor) -> Tensor:
    e = _centred(call, x)
    _exponential(call, e, out=e)
    return e.div_(sum_tree(e).unsqueeze(-1))


def _centred(call: Call, x: Tensor) -> Tensor:
    return x - row_max(call, x).unsqueeze(-1)


def _exponential(call: Call, x: Tensor, out: Tensor) -> Tensor:
    if not call.on_host:
        return torch.exp(x, out=out)
    np.exp(x.numpy(), out=out.numpy())  # takes half the time of torch's
    return out


@kernel("log_softmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    centred = _centred(call, x)
    e = _exponential(call, centred, out=torch.empty_like(centred))
    return centred - sum_tree(e).log_().unsqueeze(-1)


@kernel("entropy")
def entropy(call: Call, p: Tensor) -> Tensor:
    return -sum_tree(p * torch.log(torch.fmax(p, p.new_tensor(_TINY))))


@kernel("entropy_from_logprobs")
def entropy_from_logprobs(call: Call, p: Tensor, lp: Tensor) -> Tensor:
    return -sum_tree(p * lp)


# -- products

_PRODUCT_ELEMENTS = 1 << 22


def _alone(x: Tensor) -> Tensor:
    """The matrix, where a library sees nothing of its company: it chooses an order of summation by
    shape, strides and alignment."""
    if x.is_contiguous() and x.data_ptr() % 64 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _dot_by_tree(a: Tensor, b: Tensor) -> Tensor:
    """`[G, m, k]`, `[G, n, k]` -> `[G, m, n]`: elementwise and the tree, in blocks of a's rows that
    bound the memory."""
    per_row = b.shape[0] * b.shape[1] * b.shape[2]
    step = max(1, _PRODUCT_ELEMENTS // per_row)
    blocks = [
        sum_tree(a[:, start : start + step, None, :] * b[:, None, :, :])
        for start in range(0, a.shape[1], step)
    ]
    return torch.cat(blocks, 1)


@kernel("matmul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = together(a, b)
    if not call.on_host:
        return _dot_by_tree(a, b.transpose(1, 2))
    return torch.stack([_alone(x) @ _alone(y) for x, y in zip(a, b)])


@kernel("mm")
def mm(call: Call, w: Tensor, e: Tensor) -> Tensor:
    w, e = together(w, e)
    if not call.on_host:
        return _dot_by_tree(e, w.to(torch.float32))
    return torch.stack([_alone(y) @ _alone(x.to(torch.float32)).T for x, y in zip(w, e)])


# -- thresholds


def per_row(x: Tensor, value: Tensor) -> Tensor:
    """A `()` or `[rows]` operand as `[G, 1]` or `[G, rows, 1]`, to meet the rows of x."""
    return value.reshape(value.shape[0], *[-1] * (x.dim() - 2), 1)


@kernel("prob_ge")
def prob_ge(call: Call, x: Tensor, t: Tensor) -> Tensor:
    return x >= per_row(x, t)


@kernel("rank_le")
def rank_le(call: Call, x: Tensor, k: Tensor) -> Tensor:
    wide = per_row(x, widen(k, call.types[1].dtype))
    x, wide = together(x, wide)
    has_numbers_only = call.on_host and not torch.isnan(x.amax(-1)).any()
    values = x if has_numbers_only else x.masked_fill(torch.isnan(x), -math.inf)
    # Nothing is as large as NaN: of a k below 1 no element is kept.
    return x >= _ranked_at(call, values, wide).masked_fill(wide <= 0, math.nan)


def _ranked_at(call: Call, x: Tensor, k: Tensor) -> Tensor:
    """The k-th largest of each row, for k `[.., 1]` the first or the last where there is none."""
    length = x.shape[-1]
    k = k.clamp(1, length).expand(*x.shape[:-1], 1)
    if call.on_host and k.min() == (most := int(k.max())):
        kth = selection.kth_largest(x.reshape(-1, length).numpy(), most)
        return torch.from_numpy(kth).reshape(k.shape)
    ranked = x.topk(most, -1) if call.on_host else x.sort(-1, descending=True)
    return ranked.values.gather(-1, k - 1)
