"""Errors that end a command, as messages and exit codes. What is not known here is a bug."""

import errno
import re
import sys
import traceback

from pie_cli.output import error
from pie_cli.usage import UsageError

USAGE, ENGINE_FAILED, INTERRUPTED = 2, 3, 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_FORBIDDEN = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG,
    errno.EISDIR,
}  # fmt: skip


def explain(failure: Exception) -> int:
    """Say what went wrong, and what to do; the exit code."""
    if isinstance(failure, UsageError):
        error(str(failure), failure.hint)
        return USAGE
    for explain_some in (_of_engine, _of_store, _of_command_tree, _of_machine):
        code = explain_some(failure)
        if code is not None:
            return code
    traceback.print_exception(failure)
    error("this is a bug in pie", "please report it with the lines above")
    return ENGINE_FAILED


# An error can only come from a module that is loaded: nothing heavy is imported to find out.


def _of_engine(failure: Exception) -> int | None:
    connection = sys.modules.get("pie_cli.connection")
    if connection is None or not isinstance(failure, connection.EngineLost):
        return None
    log = f"its log is `{failure.log}`" if failure.log else ""
    error(str(failure), "; ".join(filter(None, [failure.hint, log])))
    return ENGINE_FAILED


def _of_store(failure: Exception) -> int | None:
    models = sys.modules.get("pie_cli.models")
    if models is None or not isinstance(failure, models.StoreFailure):
        return None
    error(str(failure), failure.hint)
    return failure.exit_code


def _of_machine(failure: Exception) -> int | None:
    if not isinstance(failure, OSError):
        return None
    if failure.filename is None and failure.errno == errno.ENOENT:  # what getcwd says
        error(
            "the current folder does not exist any more", "change to another, or give whole paths"
        )
        return USAGE
    if failure.filename is None and failure.errno in _NO_ROOM:
        error(f"cannot write the output: {failure.strerror}")
        return ENGINE_FAILED
    if failure.filename is not None and failure.errno in _NO_ROOM | _FORBIDDEN:
        hint = "pie keeps its files in `PIE_HOME`: set it to a folder that you may write"
        if failure.errno == errno.EISDIR:
            hint = "a file belongs there: remove the folder"
        error(f"cannot use `{failure.filename}`: {failure.strerror}", hint)
        return ENGINE_FAILED
    return None


def _of_command_tree(failure: Exception) -> int | None:
    typer = sys.modules.get("typer")
    if typer is None:
        return None
    # typer carries its own copy of click, under a private name.
    usage = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
    if isinstance(failure, typer.Exit):
        return failure.exit_code
    if isinstance(failure, typer.Abort):
        return INTERRUPTED
    if not isinstance(failure, usage):
        return None
    if type(failure).__name__ == "NoArgsIsHelpError":
        print(failure.format_message())
        return 0
    command = failure.ctx.command_path if failure.ctx else "pie"
    text = failure.format_message().rstrip(".").replace("Value error, ", "")
    message = re.sub(r"'([^']*)'", r"`\1`", text)
    error(message, f"`{command} --help` lists what it takes")
    return USAGE
