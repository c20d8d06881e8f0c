"""`pie`: from the command line to an exit code. Every error of a user ends here as a message."""

import os
import sys

INTERRUPTED, PIPE_CLOSED = 130, 141
HELP = {"-h", "--help"}


def main() -> None:
    """Entry point of the program."""
    sys.exit(command(sys.argv[1:]))


def command(arguments: list[str]) -> int:
    """Run one verb; its exit code."""
    try:
        code = _run(arguments[1:]) if is_run(arguments) else _any_verb(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; a flush at exit must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - nothing may end as a bare traceback
        from pie_cli.failures import explain

        return explain(error)


def is_run(arguments: list[str]) -> bool:
    """Whether this is a launch, which does not wait for the command tree."""
    own = own_words(arguments)
    return own[:1] == ["run"] and len(own) > 1 and not HELP & set(own)


def own_words(arguments: list[str]) -> list[str]:
    """Those that are not the app's."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _run(arguments: list[str]) -> int:
    from pie_cli.run import run
    from pie_cli.run_options import parse

    return run(parse(arguments))


def _any_verb(arguments: list[str]) -> int:
    from pie_cli.app import app, help_text

    if HELP & set(own_words(arguments)) and (text := help_text(arguments)):
        print(text)
        return 0
    code = app(arguments, prog_name="pie", standalone_mode=False)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
