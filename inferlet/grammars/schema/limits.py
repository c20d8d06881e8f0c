"""Values of keywords, checked; patterns; and which of some listed values a shape's limits keep."""

import functools
import re
from decimal import Decimal
from typing import Any

from inferlet.errors import GrammarError
from inferlet.grammars.regex import spell, tree, whole
from inferlet.grammars.schema import numbers
from inferlet.grammars.schema.document import Place, refuse
from inferlet.grammars.schema.shapes import Number, Shape, String


def number(place: Place, keyword: str) -> Decimal:
    value = place.value[keyword]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise refuse(place, keyword, "must be a number")
    return Decimal(value)


def count(place: Place, keyword: str, default: int | None = None) -> int | None:
    """A keyword whose value is a length."""
    value = place.value.get(keyword, default)
    if value is default:
        return default
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refuse(place, keyword, "must be an integer >= 0")
    return value


def pattern_of(place: Place, keyword: str, pattern: Any) -> tree.Node:
    """The texts in which a pattern matches."""
    if not isinstance(pattern, str):
        raise refuse(place, keyword, "must be a string")
    try:
        return search(pattern)
    except GrammarError as error:
        raise refuse(
            place, keyword, f"is not supported: {str(error).partition(chr(10))[0]}"
        ) from None


@functools.lru_cache(maxsize=512)
def search(pattern: str) -> tree.Node:
    return whole.search(pattern)


@functools.lru_cache(maxsize=512)
def matcher(node: tree.Node) -> re.Pattern[str]:
    """For values that are known: enums, and names of properties."""
    return re.compile(spell.python(node), re.DOTALL)


def simplified(shape: Shape) -> Shape | None:
    """Listed values are filtered by the limits; None when nothing is left that can be seen here."""
    match shape:
        case Number(values=values) if values is not None:
            kept = tuple(value for value in values if numbers.holds(shape, value))
            return Number(values=kept) if kept else None
        case Number():
            return None if numbers.is_empty(shape) else shape
        case String(patterns, low, high, values) if values is not None:
            kept = tuple(
                value for value in values
                if low <= len(value) <= (len(value) if high is None else high)
                and all(matcher(node).fullmatch(value) for node in patterns)
            )  # fmt: skip
            return String(values=kept) if kept else None
        case String(_, low, high, _) if high is not None and low > high:
            return None
    return shape
