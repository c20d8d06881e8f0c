"""What messages call a value that is not what a function takes. Knows nothing of the functions."""

import inspect
from typing import Any

LENGTH = 80  # of a value that is shown
MOST = 8  # items of a list that are looked at


def shown(value: Any) -> str:
    """The value as Python writes it, cut short; what was not awaited says so, in lists too."""
    return forgotten(value) or f"{value!r:.{LENGTH}}"


def kind(value: Any) -> str:
    """The name of its type; what was not awaited says so."""
    return forgotten(value) or type(value).__name__


def forgotten(value: Any) -> str:
    """Words for a value that was not awaited, or a list with one; empty for all others."""
    if isinstance(value, list | tuple):
        inner = next(filter(None, map(_bare, value[:MOST])), "")
        return inner and f"a {type(value).__name__} with {inner}"
    return _bare(value)


def _bare(value: Any) -> str:
    if inspect.iscoroutine(value):
        value.close()  # else Python warns of it too
        return "a call that was not awaited (write `await`)"
    if inspect.isawaitable(value):
        return "a result that was not awaited (write `await`)"
    return ""
