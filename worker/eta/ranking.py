"""Kernels that need an order of a row's elements, and samplers.

On the host they look at the data to leave most of the vocabulary unsorted; on a device, where a
look would stall it, they sort. Both give the definition's result.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from worker.eta import random
from worker.eta.kernels import Call, kernel, masked, together
from worker.eta.rows import argmax, per_row, probabilities, sum_tree

# Two prefix sums this close may be taken as equal (contract, 15.4).
_MASS_SLACK = 1e-6
# A sum of candidates in another order than the rank may differ by less than this factor.
_MASS_MARGIN = 1.0 + 1e-9
# Bars for candidates, as shares of p: most rows are decided by the first.
_SHARES = (2.0**-9, 2.0**-12, 2.0**-15, 2.0**-18)
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
    if length <= _SHORT_ROW or 4 * k > length:
        return sort_rows(x)[:, :k]
    # torch does not say which of several equal elements it gives: only the k-th value is used.
    kth = x.topk(k, -1).values[:, -1:]
    if torch.isnan(x.amax(-1)).any():  # torch ranks NaN highest
        return sort_rows(x)[:, :k]
    candidates = Candidates(x >= kth)
    order = sort_rows(candidates.values(x, -math.inf))[:, :k]
    return candidates.index.gather(-1, order)


def _places(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of what is chosen, row after row. Host only."""
    # numpy has a fast way for flat bools: 1 ms for 32 rows of a vocabulary, torch's takes 16.
    flat = torch.from_numpy(np.flatnonzero(chosen.contiguous().numpy()))
    row = torch.div(flat, chosen.shape[-1], rounding_mode="floor")
    return row, flat - row * chosen.shape[-1]


class Candidates:
    """A few elements of each row in index order, padded to the longest row."""

    def __init__(self, chosen: Tensor) -> None:
        row, column = _places(chosen)
        counts = torch.bincount(row, minlength=chosen.shape[0])
        starts = counts.cumsum(0) - counts
        place = torch.arange(row.shape[0], device=row.device) - starts[row]
        shape = (chosen.shape[0], max(1, int(counts.max())))
        # index  [rows, M]  padding points at element 0 and is not `real`
        self.index = torch.zeros(shape, dtype=torch.int64, device=row.device)
        self.index[row, place] = column
        self.real = torch.zeros(shape, dtype=torch.bool, device=row.device)
        self.real[row, place] = True

    def values(self, x: Tensor, padding: float) -> Tensor:
        return x.gather(-1, self.index).masked_fill_(~self.real, padding)


def _kept_in_order(sorted_mass: Tensor, p: Tensor) -> Tensor:
    """Which of the ranked masses have less than p before them. f64 prefix sums, exclusive."""
    wide = sorted_mass.to(torch.float64).masked_fill(torch.isnan(sorted_mass), 0.0)
    # Shifted, not subtracted: `before + x - x` is not always `before`.
    before = torch.nn.functional.pad(wide.cumsum(-1)[..., :-1], (1, 0))
    return (before < p.to(torch.float64)) & ~torch.isnan(sorted_mass)


@kernel("cummass_le")
def cummass_le(call: Call, x: Tensor, p: Tensor) -> Tensor:
    x, p = together(x, per_row(x, p))
    rows = x.reshape(-1, x.shape[-1])
    return mass_kept(call, rows, p.expand(*x.shape[:-1], 1).reshape(-1, 1)).reshape(x.shape)


def mass_kept(call: Call, x: Tensor, p: Tensor) -> Tensor:
    """`cummass_le` of `[R, n]` with p `[R, 1]`."""
    keep = torch.zeros_like(x, dtype=torch.bool)
    if not call.on_host or x.shape[-1] <= _SHORT_ROW:
        order = sort_rows(x)
        return keep.scatter_(-1, order, _kept_in_order(x.gather(-1, order), p))
    for rows, index, kept in ranked_mass(x, p):
        row, place = kept.nonzero(as_tuple=True)
        keep[rows[row], index[row, place]] = True
    return keep


def ranked_mass(x: Tensor, p: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of rows that together are all rows: their numbers `[r]`, candidates `[r, M]` in rank
    order, and which of those are kept. What is no candidate is not kept. Host only."""
    rows = torch.arange(x.shape[0])
    # Mass below zero can bring a sum back under p: such rows are ranked whole, as are NaN rows.
    signed = ~(x.amin(-1) >= 0)
    for share in (*_SHARES, None):
        if not rows.shape[0]:
            return
        everything = rows.shape[0] == x.shape[0]
        part, limit = (x, p) if everything else (x[rows], p[rows])
        # At most total / (limit * share) elements reach the bar. They are a prefix of the rank
        # order, and decide the row as soon as they have mass p.
        bar = (limit * share).masked_fill(~(limit > 0), math.inf) if share else None
        candidates = Candidates(~torch.isnan(part) if bar is None else part >= bar)
        total = candidates.values(part, 0.0).sum(-1, dtype=torch.float64)
        enough = (total > limit.squeeze(-1) * _MASS_MARGIN) | ~(limit > 0).squeeze(-1)
        done = enough & ~signed[rows] if share else torch.ones_like(enough)
        if done.any():
            mass = candidates.values(part, math.nan)[done]
            order = sort_rows(mass)
            kept = _kept_in_order(mass.gather(-1, order), limit[done])
            yield rows[done], candidates.index[done].gather(-1, order), kept
        rows = rows[~done]


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
    keep = mass_kept(call, probabilities(call, x), p)
    keep.scatter_(-1, argmax(call, x).unsqueeze(-1), True)
    return argmax(call, _noisy(x.masked_fill(~keep, -math.inf), seed))


def _noisy(x: Tensor, seed: Tensor) -> Tensor:
    return random.gumbel(seed, torch.arange(x.shape[-1], device=x.device)).add_(x)


def _nucleus_on_host(call: Call, x: Tensor, p: Tensor, seed: Tensor) -> Tensor:
    mass = probabilities(call, x)
    # Where p is the whole mass, every element conforms, and a sort of the row is saved.
    total = sum_tree(mass).unsqueeze(-1).to(torch.float64)
    whole = (p.to(torch.float64) >= total - _MASS_SLACK).squeeze(-1)
    result = torch.empty(x.shape[0], dtype=torch.int64)
    if whole.any():
        result[whole] = argmax(call, _noisy(x if whole.all() else x[whole], seed[whole]))
    part = (~whole).nonzero().squeeze(-1)
    best = argmax(call, x).unsqueeze(-1)
    partial = (mass[part], p[part]) if whole.any() else (mass, p)
    for rows, index, kept in ranked_mass(*partial):
        rows = part[rows]
        # The largest logit is always kept; twice does no harm.
        index = torch.cat((index, best[rows]), -1)
        kept = torch.nn.functional.pad(kept, (0, 1), value=True)
        result[rows] = _chosen(x, rows, index, kept, seed[rows])
    return result


def _chosen(x: Tensor, rows: Tensor, index: Tensor, kept: Tensor, seed: Tensor) -> Tensor:
    """The sample of each row among its kept elements `index[kept]`."""
    noisy = x[rows.unsqueeze(-1), index] + random.gumbel(seed, index)
    noisy.masked_fill_(~kept, -math.inf)
    top = noisy.amax(-1, keepdim=True)  # NaN only in a row whose one kept element is NaN
    chosen = index.masked_fill(noisy != top, x.shape[-1]).amin(-1)
    # Nothing above -inf: the lowest index of the row; NaN at 0: the first that is not kept.
    top = top.squeeze(-1)
    chosen = chosen.masked_fill(top == -math.inf, 0)
    return chosen.masked_fill(torch.isnan(top), min(1, x.shape[-1] - 1))
