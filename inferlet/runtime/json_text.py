"""JSON text of what the user's program gave, and in words which part of it has none."""

import inspect
import json
from collections.abc import Callable
from typing import Any

NOT_AWAITED = ", which was not awaited"
Convert = Callable[[Any], Any]


def dumps(value: Any, name: str, convert: Convert | None = None) -> str:
    """JSON text. TypeError or ValueError in words that name the place, from `name` on.

    `convert` makes plain values of others, or raises TypeError.
    """
    try:
        return json.dumps(value, allow_nan=False, default=convert)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(_where(value, name, convert) or str(error)) from None


def repair(error: Exception, usual: str) -> str:
    """The hint for an error of `dumps`; `usual`: for what is no JSON value."""
    return "write `await` before it" if str(error).endswith(NOT_AWAITED) else usual


def _where(value: Any, name: str, convert: Convert | None) -> str:
    try:
        return _culprit(value, name, frozenset(), convert)
    except RecursionError:
        return f"{name} is nested too deeply"


def _culprit(value: Any, path: str, seen: frozenset[int], convert: Convert | None) -> str:
    """What is no JSON inside `value`, in words; empty when nothing is found."""
    if id(value) in seen:
        return f"{path} contains itself"
    if value is None or isinstance(value, (str, bool, int)):
        return ""
    if isinstance(value, float):
        is_finite = value - value == 0
        return "" if is_finite else f"{value} at {path}"
    seen |= {id(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                return f"a key of type {type(key).__name__} at {path}"
            if found := _culprit(item, f"{path}[{key!r}]", seen, convert):
                return found
        return ""
    if isinstance(value, (list, tuple)):
        places = (_culprit(item, f"{path}[{i}]", seen, convert) for i, item in enumerate(value))
        return next(filter(None, places), "")
    if convert is not None:
        try:
            return _culprit(convert(value), path, seen, convert)
        except TypeError:
            pass  # it is the culprit
    if inspect.iscoroutine(value):
        value.close()  # else Python warns of it too, at a line of ours
    not_awaited = NOT_AWAITED if inspect.isawaitable(value) else ""
    return f"{type(value).__name__} at {path}{not_awaited}"
