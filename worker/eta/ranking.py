"""Kernels that need an order of a row's elements, and samplers.

On the host they look at the data to leave most of the vocabulary unsorted; on a device, where a
look would stall it, they sort. Both give the definition's result.
"""

import math

import numpy as np
import torch
from torch import Tensor

from worker.eta import random, selection
from worker.eta.kernels import Call, kernel, masked, together
from worker.eta.rows import argmax, per_row, probabilities, sum_tree

# Two prefix sums this close may be taken as equal (contract, 15.4).
_MASS_SLACK = 1e-6
# Probabilities of a row add up to 1 with less error than this.
_SUM_ERROR = 1e-4
# Rows shorter than this are sorted whole: finding candidates would cost as much.
_SHORT_ROW = 1024


def sort_rows(x: Tensor) -> Tensor:
    """int64 indices of each f32 row: descending, lower index first, NaN last."""
    missing = torch.isnan(x)
    order = _stable_order(x.masked_fill(missing, -math.inf), descending=True)
    if x.device.type == "cpu" and not missing.any():
        return order
    late = _stable_order(missing.gather(-1, order).to(torch.int8), descending=False)
    return order.gather(-1, late)


def _stable_order(x: Tensor, descending: bool) -> Tensor:
    return torch.sort(x, dim=-1, descending=descending, stable=True).indices


@kernel("top_k_indices")
def top_k_indices(call: Call, x: Tensor) -> Tensor:
    k = call.attrs["k"]
    rows = x.reshape(-1, x.shape[-1])
    found = _top_k_on_host(rows, k) if call.on_host else sort_rows(rows)[:, :k]
    return found.reshape(*x.shape[:-1], k).to(torch.int32)


def _top_k_on_host(x: Tensor, k: int) -> Tensor:
    length = x.shape[-1]
    if length <= _SHORT_ROW or 4 * k > length or torch.isnan(x.amax(-1)).any():
        return sort_rows(x)[:, :k]
    values, columns = map(torch.from_numpy, selection.top_table(x.numpy(), k))
    return columns.gather(-1, sort_rows(values)[:, :k])  # padding comes last


@kernel("cummass_le")
def cummass_le(call: Call, x: Tensor, p: Tensor) -> Tensor:
    x, p = together(x, per_row(x, p))
    rows = x.reshape(-1, x.shape[-1])
    kept_of = _mass_kept_on_host if call.on_host else mass_kept
    return kept_of(rows, p.expand(*x.shape[:-1], 1).reshape(-1, 1)).reshape(x.shape)


def mass_kept(x: Tensor, p: Tensor) -> Tensor:
    """`cummass_le` of `[R, n]` with p `[R, 1]`."""
    order = sort_rows(x)
    kept = _kept_in_order(x.gather(-1, order), p)
    return torch.zeros_like(x, dtype=torch.bool).scatter_(-1, order, kept)


def _kept_in_order(sorted_mass: Tensor, p: Tensor) -> Tensor:
    """Which of the ranked masses have less than p before them. f64 prefix sums, exclusive."""
    wide = sorted_mass.to(torch.float64).masked_fill(torch.isnan(sorted_mass), 0.0)
    # Shifted, not subtracted: `before + x - x` is not always `before`.
    before = torch.nn.functional.pad(wide.cumsum(-1)[..., :-1], (1, 0))
    return (before < p.to(torch.float64)) & ~torch.isnan(sorted_mass)


def _mass_kept_on_host(x: Tensor, p: Tensor) -> Tensor:
    if x.shape[-1] <= _SHORT_ROW:
        return mass_kept(x, p)
    # Mass below zero can bring a sum back under p: such rows are ranked whole, as are NaN rows.
    plain = x.amin(-1) >= 0
    if not plain.all():
        keep = torch.zeros_like(x, dtype=torch.bool)
        keep[~plain] = mass_kept(x[~plain], p[~plain])
        if plain.any():
            keep[plain] = _mass_kept_on_host(x[plain], p[plain])
        return keep
    kept = np.zeros(x.shape, np.bool_)
    few, wide, mask = selection.kept_by_mass(x.numpy(), p[:, 0].numpy())
    kept[few], kept[wide] = True, mask
    return torch.from_numpy(kept)


# -- samplers


@kernel("gumbel")
def gumbel(call: Call, state: Tensor) -> Tensor:
    return _draws(call, state, random.gumbel)


@kernel("normal")
def normal(call: Call, state: Tensor) -> Tensor:
    return _draws(call, state, random.normal)


def _draws(call: Call, state: Tensor, draw: random.Draw) -> Tensor:
    j = torch.arange(call.result.size, device=state.device)
    return draw(random.seeds(state).unsqueeze(-1), j).reshape(-1, *call.result.shape)


@kernel("gumbel_max")
def gumbel_max(call: Call, logits: Tensor, state: Tensor) -> Tensor:
    length = call.types[0].size
    noise = random.gumbel(
        random.seeds(state).unsqueeze(-1), torch.arange(length, device=state.device)
    )
    shape = call.types[0].shape
    noisy = noise.reshape(-1, *shape)
    noisy = noisy.add_(logits) if noisy.shape[0] == logits.shape[0] else noisy + logits
    return argmax(call, noisy).to(torch.int32)


@kernel("masked_argmax")
def masked_argmax(call: Call, logits: Tensor, m: Tensor) -> Tensor:
    return argmax(call, masked(call, logits, m)).to(torch.int32)


@kernel("nucleus_sample")
def nucleus_sample(call: Call, logits: Tensor, top_p: Tensor, state: Tensor) -> Tensor:
    logits, p, state = together(logits, per_row(logits, top_p), state)
    rows = logits.reshape(-1, logits.shape[-1])
    per_instance = rows.shape[0] // logits.shape[0]
    p = p.expand(*logits.shape[:-1], 1).reshape(-1, 1)
    # seed  [R, 1]: element 0 of a row is element `row * n` of its instance
    first = torch.arange(per_instance, device=rows.device) * rows.shape[-1]
    seed = random.skip(random.seeds(state).unsqueeze(-1), first).reshape(-1, 1)
    sample = _nucleus_on_host if call.on_host else _nucleus_sorted
    return sample(call, rows, p, seed).reshape(logits.shape[:-1]).to(torch.int32)


def _nucleus_sorted(call: Call, x: Tensor, p: Tensor, seed: Tensor) -> Tensor:
    keep = mass_kept(probabilities(call, x), p)
    keep.scatter_(-1, argmax(call, x).unsqueeze(-1), True)
    return argmax(call, _noisy(x.masked_fill(~keep, -math.inf), seed))


def _noisy(x: Tensor, seed: Tensor) -> Tensor:
    return random.gumbel(seed, torch.arange(x.shape[-1], device=x.device)).add_(x)


def _nucleus_on_host(call: Call, x: Tensor, p: Tensor, seed: Tensor) -> Tensor:
    best = argmax(call, x).unsqueeze(-1)
    score = random.gumbel(seed, best) + x.gather(-1, best)
    # The largest logit alone: nothing above -inf gives index 0, NaN at 0 the first not kept.
    alone = best.masked_fill(score == -math.inf, 0)
    alone = alone.masked_fill(torch.isnan(score), min(1, x.shape[-1] - 1))
    mass = probabilities(call, x)
    # A row with NaN or an infinite top has no probabilities, all are NaN: it keeps its top alone.
    plain = ~torch.isnan(mass[:, :1])
    whole = plain & _is_whole(mass, p)
    result = alone.squeeze(-1)
    if whole.any():
        rows = _chosen(whole)
        result[rows] = argmax(call, _noisy(x[rows], seed[rows]))
    part = p.masked_fill(~plain | whole, 0.0).squeeze(-1)
    few, wide, kept = selection.kept_by_mass(mass.numpy(), part.numpy())
    _improve(result.numpy(), score.squeeze(-1).numpy(), x, seed, few)
    if len(wide):
        rows, keep = torch.from_numpy(wide), torch.from_numpy(kept)
        keep.scatter_(-1, best[rows], True)
        result[rows] = argmax(call, _noisy(x[rows].masked_fill_(~keep, -math.inf), seed[rows]))
    return result


def _chosen(flags: Tensor) -> Tensor | slice:
    """The rows that have flags `[R, 1]`, as an index that copies nothing when that is all."""
    return slice(None) if flags.all() else flags.squeeze(-1)


def _is_whole(mass: Tensor, p: Tensor) -> Tensor:
    """Where p is the whole mass `[R, 1]`: every element conforms, and no row need be ranked."""
    whole = torch.zeros_like(p, dtype=torch.bool)
    near = p >= 1.0 - _SUM_ERROR
    if near.any():
        near = _chosen(near)
        total = sum_tree(mass[near]).to(torch.float64).unsqueeze(-1)
        whole[near] = p[near].to(torch.float64) >= total - _MASS_SLACK
    return whole


def _improve(
    result: selection.Array,
    score: selection.Array,
    x: Tensor,
    seed: Tensor,
    found: selection.Places,
) -> None:
    """Samples among what is found, against the score of the results so far."""
    row, column = torch.from_numpy(found.row), torch.from_numpy(found.column)
    noisy = random.gumbel(seed[row, 0], column).add_(x[row, column])
    rows, top, first = selection.first_largest(noisy.numpy(), found)
    better = (top > score[rows]) | ((top == score[rows]) & (first < result[rows]))
    result[rows[better]] = first[better]
