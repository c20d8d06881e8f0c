"""Failures of fires and of the engine, as the errors that awaits and later calls raise."""

from collections.abc import Callable

from inferlet.errors import InferletError, OutOfMemory
from ipc.errors import ErrorCode, Failure

MakeError = Callable[
    [], InferletError
]  # a new one for each await: a traceback belongs to one raise


def engine_failure(failure: Failure) -> MakeError:
    """The engine is gone, or has dropped this process."""
    text = f"the engine failed: {failure.message}"
    return lambda: _kind(failure)(text)


def fire_failure(failure: Failure, label: str, number: int, place: str) -> MakeError:
    """Fire `number` of the pass `label` failed; `place` is the user's line, or empty."""
    where = f" in its {failure.stage}" if failure.stage else ""
    text = f"fire {number} of {label} failed{where}: {failure.message}"
    if place:
        text += f"\n  at {place}"
    return lambda: _kind(failure)(text)


def _kind(failure: Failure) -> type[InferletError]:
    return OutOfMemory if failure.code == ErrorCode.OUT_OF_MEMORY else InferletError
