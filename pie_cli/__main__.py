"""`pie`: from the command line to an exit code. Every error of a user ends here as a message."""

import os
import sys

from pie_cli.engine_flags import refuse_missing, take_engine
from pie_cli.usage import UsageError

ENGINE_FAILED, INTERRUPTED, PIPE_CLOSED = 3, 130, 141
HELP = {"-h", "--help"}
COMPLETE = "__complete"  # what shells call


def main() -> None:
    """Entry point of the program."""
    open_missing_streams()
    code = command(sys.argv[1:])
    drop_unwritten()
    sys.exit(code)


def command(arguments: list[str]) -> int:
    """Run one verb; its exit code."""
    try:
        if arguments[:1] == [COMPLETE]:
            return _complete(arguments[1:])
        if is_python(arguments):
            return _python(arguments[1:])
        refuse_undecodable(arguments)
        arguments = take_engine(arguments)
        refuse_missing(own_words(arguments))
        code = _run(arguments[1:]) if is_run(arguments) else _any_verb(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED  # whoever read our output is gone
    except Exception as error:  # noqa: BLE001 - nothing may end as a bare traceback
        from pie_cli.failures import explain

        try:
            return explain(error)
        except OSError:  # stderr cannot be written: nobody can be told
            return ENGINE_FAILED


def open_missing_streams() -> None:
    """What the caller has closed leads nowhere; no file opened later may take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def drop_unwritten() -> None:
    """Forget what a stream could not take: a flush at exit must not fail once more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def refuse_undecodable(arguments: list[str]) -> None:
    """Words that are not UTF-8 could not be sent to an engine. Raises UsageError."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(word).decode(errors="backslashreplace")
            raise UsageError(f"`{shown}` is not UTF-8") from None


def is_run(arguments: list[str]) -> bool:
    """Whether this is a launch, which does not wait for the command tree."""
    own = own_words(arguments)
    return own[:1] == ["run"] and len(own) > 1 and not HELP & set(own)


def is_python(arguments: list[str]) -> bool:
    """Whether what follows is Python's own, options and all."""
    return arguments[:1] == ["python"] and (len(arguments) == 1 or arguments[1] not in HELP)


def own_words(arguments: list[str]) -> list[str]:
    """Those that are not the app's."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _complete(arguments: list[str]) -> int:
    from pie_cli.completion import main

    try:
        return main(arguments)
    except Exception:  # noqa: BLE001 - nobody types this: a fault is no completion
        return 1


def _python(arguments: list[str]) -> int:
    from pie_cli.python import become

    sys.stdout.flush()
    return become(arguments)


def _run(arguments: list[str]) -> int:
    from pie_cli.run import run
    from pie_cli.run_options import parse

    try:
        return run(parse(arguments))
    except KeyboardInterrupt as error:
        from pie_cli.output import Interrupted, end_interrupted_line

        if not isinstance(error, Interrupted):  # for the other verbs, typer does it
            end_interrupted_line()
        raise


def _any_verb(arguments: list[str]) -> int:
    from pie_cli.app import app, help_text

    if HELP & set(own_words(arguments)) and (text := help_text(arguments)):
        print(text)
        return 0
    try:
        code = app(arguments, prog_name="pie", standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer makes it exit code 1: the app's
            raise end.__context__ from None
        raise
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
