"""The limits of one launch: the engine's own, or less. Enforces none of them."""

import msgspec

from ipc import client as c
from ipc.types import Limits

AT_LEAST = {"memory": 1 << 20, "descriptors": 8}  # what a process needs to begin; of others, 1
IN_BYTES = ("memory", "channels", "output")
_UNITS = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


def amount(key: str, value: int) -> str:
    """A limit as it may have been typed, and in whole: `128M (134,217,728 bytes)`."""
    if key not in IN_BYTES:
        return f"{value:,}"
    for unit, size in _UNITS:
        if value % size == 0:
            return f"{value // size}{unit} ({value:,} bytes)"
    return f"{value:,} byte{'' if value == 1 else 's'}"


class LimitRefused(ValueError):
    """A limit that a launch may not have: what is wrong, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def lowered(own: Limits, asked: c.Asked, timeout: float | None = None) -> Limits:
    """The engine's own limits, with those that are asked for. Raises LimitRefused."""
    if timeout is not None and not timeout > 0:  # NaN is nothing of both
        raise LimitRefused(f"the timeout is {timeout} s", "it is more than 0 seconds")
    changes = {}
    for key in c.Asked.__struct_fields__:
        value = getattr(asked, key)
        if value is None:
            continue
        most, least = getattr(own, key), AT_LEAST.get(key, 1)
        if value > most:
            hint = "a launch may lower the engine's limits, not raise them"
            raise LimitRefused(
                f"the limit `{key}` is {amount(key, value)}; "
                f"the engine's own is {amount(key, most)}", hint,
            )
        if value < least:
            raise LimitRefused(
                f"the limit `{key}` is {amount(key, value)}",
                f"it is at least {amount(key, least)}",
            )
        changes[key] = value
    return msgspec.structs.replace(own, **changes)
