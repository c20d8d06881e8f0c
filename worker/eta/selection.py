"""Finds the few elements of long rows that rank high, without sorting the rows. Host only, since
every step looks at the data. Owns bars, cuts and flat lists of elements; refuses negative mass.

A flat list is a pair of rows and columns, row after row, each row in index order. Lists are kept
flat: rows differ in length by thousands, and a rectangle around them would be mostly padding.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray

# Bars for candidates, as shares of p: most rows are decided by the first. `_cut` relies on the last.
_SHARES = (2.0**-9, 2.0**-12, 2.0**-15, 2.0**-18)
# Lists with fewer elements a row than this are sorted at once.
_FEW = 64
# Where more than this share of the elements is above the bar, sorting rows costs less than lists.
_MANY = 0.25
_SORTED_AT_ONCE = 4  # rows, which bounds the memory
# Elements whose f32 bits agree but for this many are one level: 32 levels for each power of two.
_LEVEL_BITS = 18


class Places(NamedTuple):
    row: Array
    column: Array


def places(chosen: Array) -> Places:
    """Where `chosen` is true."""
    # Eight flags at once: nearly all are false, and the words that are not are few.
    words = np.ascontiguousarray(chosen).reshape(-1)
    if words.size % 8:
        flat = np.flatnonzero(words)
    else:
        words = words.view(np.uint64)
        busy = np.flatnonzero(words != 0)
        flag = np.flatnonzero(words[busy].view(np.uint8))
        flat = (busy[flag >> 3] << 3) + (flag & 7)
    row = flat // chosen.shape[-1]
    return Places(row, flat - row * chosen.shape[-1])


def place_in_row(row: Array, counts: Array) -> Array:
    """How many elements of the same row precede each element of a flat list."""
    return np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


class Kept(NamedTuple):
    """Elements of rows: of most rows a list, of those that keep much a mask."""

    few: Places
    wide: Array  # numbers of the rows of `mask`
    mask: Array  # bool [wide, n]


def kept_by_mass(x: Array, p: Array) -> Kept:
    """The elements of `x` `[rows, n]` that have less than `p` `[rows]` ranked before them. No
    element is negative or NaN. A row's list is whole, but rows come in any order."""
    rows, lists = np.flatnonzero(p > 0), [Places(*np.zeros((2, 0), np.int64))]
    for share in _SHARES:
        part = x if len(rows) == len(x) else x[rows]
        # What reaches the bar is a prefix of the rank order, and decides the row when its mass is
        # p. At most total / bar elements do.
        chosen = part >= (p[rows] * np.float32(share))[:, None]
        if np.count_nonzero(chosen) > _MANY * part.size:
            break
        found = places(chosen)
        kept, decided = _cut(part[found], found.row, p[rows].astype(np.float64))
        kept &= decided[found.row]
        lists.append(Places(rows[found.row[kept]], found.column[kept]))
        rows = rows[~decided]
        if not len(rows):
            break
    row, column = zip(*lists, strict=True)
    mask = np.empty((len(rows), x.shape[-1]), np.bool_)
    for start in range(0, len(rows), _SORTED_AT_ONCE):
        block = slice(start, start + _SORTED_AT_ONCE)
        mask[block] = _kept_of_sorted(x[rows[block]], p[rows[block], None].astype(np.float64))
    return Kept(Places(np.concatenate(row), np.concatenate(column)), rows, mask)


def _kept_of_sorted(x: Array, limit: Array) -> Array:
    """Mask of `kept_by_mass`, from values in order."""
    ranked = np.sort(x, axis=-1)[:, ::-1]
    before = np.zeros(x.shape)
    np.cumsum(ranked[:, :-1], axis=-1, dtype=np.float64, out=before[:, 1:])
    number = (before < limit).sum(-1, keepdims=True)
    lowest = np.take_along_axis(ranked, number - 1, -1)
    kept, tied = x > lowest, x == lowest
    # Among equal values the lower index ranks first.
    room = number - kept.sum(-1, keepdims=True)
    return kept | tied & (tied.cumsum(-1) <= room)


def _cut(values: Array, row: Array, limit: Array) -> tuple[Array, Array]:
    """Of a flat list, which elements have mass below their row's limit before them, and which rows
    have mass enough to reach it."""
    # Sums that have not reached a limit are exact in f64 in whatever order, so levels may be added
    # first: 24 bits of each element, and none is smaller than the limit by more than 18 bits.
    start = np.zeros(len(limit))
    if len(values) <= _FEW * len(limit):
        return _cut_ranked(values, row, start, limit)
    # Bits of floats that are not negative have the order of the floats.
    level = values.view(np.int32) >> _LEVEL_BITS
    highest = level.max()
    depth = highest - level
    num_levels = int(highest - level.min()) + 1
    key = row * num_levels + depth
    mass = np.bincount(key, values, len(limit) * num_levels).reshape(-1, num_levels)
    # upto  [rows, levels]  mass of a level and all above; rises, so `at` is the level that reaches
    upto = mass.cumsum(-1)
    at = (upto < limit[:, None]).sum(-1)
    np.copyto(start, upto[np.arange(len(limit)), at - 1], where=at > 0)
    kept = depth < at[row]
    edge = np.flatnonzero(depth == at[row])
    kept[edge], reached = _cut_ranked(values[edge], row[edge], start, limit)
    return kept, reached


def _cut_ranked(values: Array, row: Array, start: Array, limit: Array) -> tuple[Array, Array]:
    """As `_cut`, by sorting, where rows have the mass `start` before the list."""
    counts = np.bincount(row, minlength=len(limit))
    within = place_in_row(row, counts)
    number = np.zeros(len(limit), np.int64)  # of elements kept
    lowest = np.full(len(limit), np.inf, np.float32)  # value kept
    reached = start >= limit
    # Rows of similar length in one table: padding is at most three quarters.
    size = np.frexp(counts.astype(np.float64))[1] // 2
    for group in np.unique(size[counts > 0]):
        members = np.flatnonzero((size == group) & (counts > 0))
        ranked = _ranked(values, row, within, members, counts)
        sums = np.empty((len(members), ranked.shape[1] + 1))
        sums[:, 0], sums[:, 1:] = start[members], ranked
        np.cumsum(sums, axis=-1, out=sums)
        bounds = limit[members, None]
        reached[members] = sums[:, -1] >= bounds[:, 0]
        # The sums only rise, so what is kept is a prefix. Padding is not counted.
        number[members] = np.minimum((sums[:, :-1] < bounds).sum(-1), counts[members])
        # At least one: the list is empty, or starts below the limit.
        lowest[members] = ranked[np.arange(len(members)), number[members] - 1]
    return _above(values, row, lowest, number), reached


def _ranked(values: Array, row: Array, within: Array, members: Array, counts: Array) -> Array:
    """The values of some rows in descending order, padded with zeros `[members, M]`. Only values:
    equal ones add up to the same sums in whatever order."""
    table = np.zeros((len(members), counts[members].max()), np.float32)
    new_row = np.full(len(counts), -1)
    new_row[members] = np.arange(len(members))
    here = np.flatnonzero(new_row[row] >= 0)
    table[new_row[row[here]], within[here]] = values[here]
    table.sort(axis=-1)
    return table[:, ::-1]


def _above(values: Array, row: Array, lowest: Array, number: Array) -> Array:
    """The first `number` of each row in rank order, the last of which has the value `lowest`."""
    kept = values > lowest[row]
    tied = np.flatnonzero(values == lowest[row])
    # Among equal values the lower index ranks first.
    tie_row = row[tied]
    ties = np.bincount(tie_row, minlength=len(number))
    room = number - np.bincount(row[kept], minlength=len(number))
    kept[tied[place_in_row(tie_row, ties) < room[tie_row]]] = True
    return kept


def first_largest(noisy: Array, found: Places) -> tuple[Array, Array, Array]:
    """Of a flat list: its rows, each row's largest value, and the first column that has it."""
    starts = np.flatnonzero(np.diff(found.row, prepend=-1))
    rows = found.row[starts]
    top = np.maximum.reduceat(noisy, starts) if len(starts) else noisy
    segment = np.repeat(np.arange(len(rows)), np.diff(starts, append=len(noisy)))
    hit = np.flatnonzero(noisy == top[segment])
    first = hit[np.searchsorted(segment[hit], np.arange(len(rows)))]
    return rows, top, found.column[first]


def top_table(x: Array, k: int) -> tuple[Array, Array]:
    """The `k` largest of each row without NaN, and a few more: values and columns `[rows, M]`, in
    index order and padded with -inf at column 0. `k` is at most a quarter of a row."""
    found = places(x >= _top_bar(x, k)[:, None])
    counts = np.bincount(found.row, minlength=len(x))
    at = found.row, place_in_row(found.row, counts)
    values = np.full((len(x), counts.max()), -np.inf, np.float32)
    values[at] = x[found]
    columns = np.zeros(values.shape, np.int64)
    columns[at] = found.column
    return values, columns


def kth_largest(x: Array, k: int) -> Array:
    """The k-th of each row without NaN."""
    if 4 * k <= x.shape[-1]:
        x = top_table(x, k)[0]
    at = x.shape[-1] - k
    return np.partition(x, at, axis=-1)[:, at]


def _top_bar(x: Array, k: int) -> Array:
    """For each row a value that at least `k` elements reach, and not many more."""
    length = x.shape[-1]
    stride = max(1, min(32, length // (4 * k)))
    width = length // stride
    # Largest of every `stride` elements, `width` apart: the k-th of these has k elements above it.
    tops = x[:, : stride * width].reshape(len(x), stride, width).max(1)
    return np.partition(tops, width - k, axis=-1)[:, width - k]
