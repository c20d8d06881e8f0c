"""Errors that end a command, as messages and exit codes. What is not known here is a bug."""

import traceback

from pie_cli.output import error

USAGE, ENGINE_FAILED, INTERRUPTED = 2, 3, 130


def explain(failure: Exception) -> int:
    """Say what went wrong, and what to do; the exit code."""
    import typer

    # typer carries its own copy of click, under a private name.
    base = typer.BadParameter.__mro__
    usage_error = next(kind for kind in base if kind.__name__ == "UsageError")
    if isinstance(failure, typer.Exit):
        return failure.exit_code
    if isinstance(failure, typer.Abort):
        return INTERRUPTED
    if isinstance(failure, usage_error):
        return _usage(failure)
    return _ours(failure)


def _usage(failure: Exception) -> int:
    if type(failure).__name__ == "NoArgsIsHelpError":
        print(failure.format_message())
        return 0
    message = failure.format_message().rstrip(".")
    command = failure.ctx.command_path if failure.ctx else "pie"
    hint = f"`{command} --help` lists what it takes"
    if command == "pie run":
        hint += "; the app's own arguments come after `--`"
    error(message, hint)
    return USAGE


def _ours(failure: Exception) -> int:
    from pie_cli.arguments import UsageError
    from pie_cli.client import EngineLost
    from pie_cli.models import StoreFailure
    from pie_cli.settings import SettingError

    match failure:
        case UsageError() | SettingError():
            error(str(failure), failure.hint)
            return USAGE
        case StoreFailure():
            error(str(failure), failure.hint)
            return failure.exit_code
        case EngineLost():
            log = f"its log is `{failure.log}`" if failure.log else ""
            error(str(failure), "; ".join(filter(None, [failure.hint, log])))
            return ENGINE_FAILED
    traceback.print_exception(failure)
    error("this is a bug in pie", "please report it with the lines above")
    return ENGINE_FAILED
