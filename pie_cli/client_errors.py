"""What the Python client raises. The whole tree:

PieError
  BadRequest             what was asked for cannot be: no such app, a bad limit, a name in use
    NoSuchProcess        no process of that id lives or is remembered
    NotYours             the process belongs to another client
  InboxFull              the process does not take its messages
  EngineError            the engine failed, or could not start; `log` says where it wrote
  ProcessError           the process did not return
    AppError             the app is at fault: it raised, or does not compile
    ProcessTimeout       it ran longer than its timeout
    LimitExceeded        it was ended by a limit: `limit` says by which
    ProcessKilled        it was killed or interrupted, or ended from outside
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ipc import client as c

RAISED, ENGINE, TIMEOUT = 1, 3, 124


class PieError(Exception):
    """Base of everything below. `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")


class BadRequest(PieError):
    """What was asked for cannot be done, by the caller's fault."""


class NoSuchProcess(BadRequest):
    """No process of that id lives, or is remembered."""


class NotYours(BadRequest):
    """The process belongs to another client than this one speaks for."""


class InboxFull(PieError):
    """The process has as many messages that it has not received as its inbox may hold."""


class EngineError(PieError):
    """The engine failed, ended, or could not start. `log`: the path of its log."""

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log
        if log:
            self.add_note(f"its log is {log}")


class ProcessError(PieError):
    """The process ended without a result. `exit_code` is that of `pie run`."""

    def __init__(self, end: c.Error) -> None:
        text = end.message
        if end.exit == RAISED:
            text = f"{end.error}: {end.message}" if end.message else end.error
        super().__init__(text)
        self.process = end.process
        self.type, self.message, self.traceback = end.error, end.message, end.traceback
        self.exit_code, self.limit = end.exit, end.limit
        if end.traceback:
            self.add_note("Traceback in the app (most recent call last):\n" + end.traceback)


class AppError(ProcessError):
    """The app is at fault. `type`, `message` and `traceback` (the user's own frames) tell more."""


class ProcessTimeout(ProcessError):
    """The process ran longer than the timeout of its launch."""


class LimitExceeded(ProcessError):
    """The process was ended by a limit: `limit` is its key."""


class ProcessKilled(ProcessError):
    """The process was killed or interrupted, or ended from outside."""


def of_end(end: c.Error) -> PieError:
    """The error for a terminal message."""
    if end.exit == ENGINE:
        return EngineError(end.message)
    if end.limit:
        return LimitExceeded(end)
    kinds = {RAISED: AppError, TIMEOUT: ProcessTimeout}
    return kinds.get(end.exit, ProcessKilled)(end)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the command line's modules as the client's own."""
    from pie_cli.connection import EngineLost
    from pie_cli.models import StoreFailure
    from pie_cli.usage import UsageError

    try:
        yield
    except UsageError as error:
        raise BadRequest(str(error), error.hint) from None
    except EngineLost as error:
        raise EngineError(str(error), error.hint, error.log) from None
    except StoreFailure as error:
        kind = EngineError if error.exit_code == ENGINE else BadRequest
        raise kind(str(error), error.hint or "") from None
