"""Gather, scatter and mask kernels."""

import numpy as np
import torch
from torch import Tensor

from worker.eta.kernels import Call, kernel, together, widen

# Indices that are added one launch after the other on a device.
_LONGEST_STEPPED = 256


def _bounded(call: Call, idx: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """int64 indices that torch may use, and which of them are in range."""
    wide = widen(idx, call.types[1].dtype)
    valid = (wide >= 0) & (wide < length)
    return wide.masked_fill(~valid, 0), valid


@kernel("gather")
def gather(call: Call, src: Tensor, idx: Tensor) -> Tensor:
    src, idx = together(src, idx)
    count, length = src.shape[:2]
    flat = src.reshape(count, length, -1)  # [G, n, rest]
    index, valid = _bounded(call, idx.reshape(count, -1, 1), length)  # [G, S, 1]
    rows = flat.gather(1, index.expand(-1, -1, flat.shape[2]))
    return rows.masked_fill(~valid, 0).reshape(count, *call.result.shape)


@kernel("gather_row")
def gather_row(call: Call, src: Tensor, idx: Tensor) -> Tensor:
    src, idx = together(src, idx)
    return _along(call, src, idx.unsqueeze(-1)).squeeze(-1)


@kernel("pick")
def pick(call: Call, x: Tensor, idx: Tensor) -> Tensor:
    return _along(call, *together(x, idx))


def _along(call: Call, src: Tensor, idx: Tensor) -> Tensor:
    index, valid = _bounded(call, idx, src.shape[-1])
    return src.gather(-1, index).masked_fill(~valid, 0)


def _scatter_operands(
    call: Call, base: Tensor, idx: Tensor, vals: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """base `[G, n + 1, rest]` with a spare row, indices `[G, k]` that send what is out of range
    there, values `[G, k, rest]`."""
    base, idx, vals = together(base, idx, vals)
    count, length = base.shape[:2]
    flat = base.reshape(count, length, -1)
    spare = torch.cat((flat, torch.zeros_like(flat[:, :1])), 1)
    wide = widen(idx, call.types[1].dtype)
    index = wide.masked_fill((wide < 0) | (wide >= length), length)
    shape = (count, idx.shape[1], flat.shape[2])
    whole = (
        vals.reshape(count, -1, flat.shape[2]) if call.types[2].shape else vals.reshape(-1, 1, 1)
    )
    return spare, index, whole.expand(shape)


@kernel("scatter_set")
def scatter_set(call: Call, base: Tensor, idx: Tensor, vals: Tensor) -> Tensor:
    spare, index, whole = _scatter_operands(call, base, idx, vals)
    # last  [G, n + 1]: which value is the last one for each row, or -1
    order = torch.arange(index.shape[1], device=index.device).expand_as(index)
    last = torch.full(spare.shape[:2], -1, dtype=torch.int64, device=index.device)
    last.scatter_reduce_(1, index, order, "amax")
    chosen = last.clamp(min=0).unsqueeze(-1).expand_as(spare)
    result = torch.where(last.unsqueeze(-1) >= 0, whole.gather(1, chosen), spare)
    return result[:, :-1].reshape(-1, *call.result.shape)


@kernel("scatter_add")
def scatter_add(call: Call, base: Tensor, idx: Tensor, vals: Tensor) -> Tensor:
    spare, index, whole = _scatter_operands(call, base, idx, vals)
    if not call.on_host and index.shape[1] > _LONGEST_STEPPED:
        # One copy there and back costs less than a launch for each index.
        summed = _add_in_order(spare.cpu(), index.cpu(), whole.cpu()).to(spare.device)
    elif call.on_host:
        summed = _add_in_order(spare, index, whole)
    else:
        summed = spare
        instance = torch.arange(spare.shape[0], device=index.device)
        for step in range(index.shape[1]):  # f32 sums depend on the order
            summed[instance, index[:, step]] += whole[:, step]
    return summed[:, :-1].reshape(-1, *call.result.shape)


def _add_in_order(spare: Tensor, index: Tensor, whole: Tensor) -> Tensor:
    """Adds in place, in index order: numpy's `add.at` takes one element after the other."""
    count, length, rest = spare.shape
    rows = index + torch.arange(count).unsqueeze(1) * length
    places = rows.unsqueeze(-1) * rest + torch.arange(rest)
    with np.errstate(all="ignore"):
        np.add.at(spare.view(-1).numpy(), places.flatten().numpy(), whole.flatten().numpy())
    return spare


def _distances(call: Call, pos: Tensor) -> tuple[Tensor, Tensor]:
    """int64 columns `[length]` and positions `[.., 1]`."""
    columns = torch.arange(call.attrs["length"], device=pos.device)
    return columns, widen(pos, call.types[0].dtype).unsqueeze(-1)


@kernel("causal_mask")
def causal_mask(call: Call, pos: Tensor) -> Tensor:
    k, at = _distances(call, pos)
    return k <= at


@kernel("sliding_window_mask")
def sliding_window_mask(call: Call, pos: Tensor) -> Tensor:
    k, at = _distances(call, pos)
    return (k <= at) & (k + call.attrs["window"] > at)


@kernel("sink_window_mask")
def sink_window_mask(call: Call, pos: Tensor) -> Tensor:
    k, at = _distances(call, pos)
    return (k <= at) & ((k < call.attrs["sink"]) | (k + call.attrs["window"] > at))
