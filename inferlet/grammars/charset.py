"""Sets of characters: sorted, disjoint, closed ranges of code points. Surrogates are no characters."""

import functools
import unicodedata
from collections.abc import Iterable

CharSet = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


def of(*ranges: tuple[int, int]) -> CharSet:
    """The union of the ranges, without surrogates."""
    merged: list[list[int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        elif low <= high:
            merged.append([low, high])
    return tuple(_without_surrogates(merged))


def _without_surrogates(ranges: Iterable[Iterable[int]]) -> Iterable[tuple[int, int]]:
    for low, high in ranges:
        if low < SURROGATES[0]:
            yield low, min(high, SURROGATES[0] - 1)
        if high > SURROGATES[1]:
            yield max(low, SURROGATES[1] + 1), high


@functools.lru_cache(maxsize=4096)
def chars(text: str) -> CharSet:
    return of(*((ord(character), ord(character)) for character in text))


def union(*sets: CharSet) -> CharSet:
    return of(*(pair for one in sets for pair in one))


def complement(one: CharSet) -> CharSet:
    gaps, start = [], 0
    for low, high in one:
        gaps.append((start, low - 1))
        start = high + 1
    return of(*(gap for gap in [*gaps, (start, LAST)] if gap[0] <= gap[1]))


def intersect(one: CharSet, other: CharSet) -> CharSet:
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


@functools.lru_cache(maxsize=65536)
def overlap(one: CharSet, other: CharSet) -> bool:
    """Whether they have a character in common."""
    return bool(intersect(one, other))


def minus(one: CharSet, other: CharSet) -> CharSet:
    return intersect(one, complement(other))


def contains(one: CharSet, character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in one)


ALL = of((0, LAST))
DIGIT = of((0x30, 0x39))
WORD = of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x5F, 0x5F))
ASCII_SPACE = chars(" \t\n\r\f\v")
UNICODE_SPACE = chars(
    " \t\n\r\f\v\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
NOT_NEWLINE = complement(chars("\n"))
NOT_LINE_END = complement(chars("\n\r\u2028\u2029"))  # what `.` is in ECMA 262

_LONG_NAMES = {
    "Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt",
    "Mark": "M", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Punctuation": "P",
    "punct": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Other": "C",
    "Control": "Cc", "Letter_Number": "Nl", "Modifier_Letter": "Lm", "Other_Letter": "Lo",
}  # fmt: skip
_CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cn",
    ]
)


@functools.lru_cache(maxsize=32)
def category(name: str) -> CharSet | None:
    r"""The characters of `\p{name}`; None for a property that is no general category."""
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    short = _LONG_NAMES.get(name, name)
    if short == "ASCII":
        return of((0, 0x7F))
    if short == "Any":
        return ALL
    if short not in _CATEGORIES:
        return None
    ranges: list[tuple[int, int]] = []
    start = None
    for point in range(LAST + 2):
        is_in = point <= LAST and unicodedata.category(chr(point)).startswith(short)
        if is_in and start is None:
            start = point
        elif not is_in and start is not None:
            ranges.append((start, point - 1))
            start = None
    return of(*ranges)
