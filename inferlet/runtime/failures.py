"""Failures of fires and of the engine, as the errors that awaits and later calls raise."""

import errno
from collections.abc import Callable

from inferlet.errors import InferletError, OutOfMemory, with_hint
from ipc import geometry
from ipc.errors import ErrorCode, Failure

MakeError = Callable[
    [], InferletError
]  # a new one for each await: a traceback belongs to one raise

_HANDLES_HINT = "keep fewer alive at once: what nothing refers to any more is given back"
_LIMIT_HINTS = {
    "pipelines": "`close` pipelines that are done, or run several lanes in one pass",
    "channels": "give channels less `capacity`, and let go of those that are done",
    "passes": "await results before submitting more, or use `run_ahead`",
    "pages": "let go of working sets that are done",
}


def engine_failure(failure: Failure) -> MakeError:
    """The engine is gone, or has dropped this process."""
    if failure.code == ErrorCode.LIMIT:
        hint = _LIMIT_HINTS.get(failure.limit, _HANDLES_HINT)
        text = with_hint(failure.message, hint)
    else:
        text = f"the engine failed: {failure.message}"
    return lambda: _error(failure, text)


def fire_failure(failure: Failure, label: str, number: int, place: str) -> MakeError:
    """Fire `number` of the pass `label` failed; `place` is the user's line, or empty."""
    where = f" in its {failure.stage}" if failure.stage else ""
    text = f"fire {number} of {label} failed{where}: {failure.message}"
    if place:
        text += f"\n  at {place}"
    if failure.ports:
        text = with_hint(text, geometry.HINTS.get(failure.ports[0], ""))
    return lambda: _error(failure, text)


def limit_of(error: BaseException) -> str:
    """The key of the limit that an error tells of; empty when it tells of none."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return "descriptors"
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(limit_of, error.exceptions)), "")
    return getattr(error, "limit_key", "")


def _error(failure: Failure, text: str) -> InferletError:
    error = _kind(failure)(text)
    error.limit_key = failure.limit
    return error


def _kind(failure: Failure) -> type[InferletError]:
    return OutOfMemory if failure.code == ErrorCode.OUT_OF_MEMORY else InferletError
