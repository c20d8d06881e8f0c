"""Errors that end a command, as messages and exit codes. What is not known here is a bug."""

import re
import sys
import traceback

from pie_cli.output import error
from pie_cli.usage import UsageError

USAGE, ENGINE_FAILED, INTERRUPTED = 2, 3, 130


def explain(failure: Exception) -> int:
    """Say what went wrong, and what to do; the exit code."""
    if isinstance(failure, UsageError):
        error(str(failure), failure.hint)
        return USAGE
    for explain_some in (_of_engine, _of_store, _of_command_tree):
        code = explain_some(failure)
        if code is not None:
            return code
    traceback.print_exception(failure)
    error("this is a bug in pie", "please report it with the lines above")
    return ENGINE_FAILED


# An error can only come from a module that is loaded: nothing heavy is imported to find out.


def _of_engine(failure: Exception) -> int | None:
    client = sys.modules.get("pie_cli.client")
    if client is None or not isinstance(failure, client.EngineLost):
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
    message = re.sub(r"'([^']*)'", r"`\1`", failure.format_message().rstrip("."))
    error(message, f"`{command} --help` lists what it takes")
    return USAGE
