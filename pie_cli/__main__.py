"""`pie`: from the command line to an exit code. Every error of a user ends here as a message."""

import os
import sys

INTERRUPTED, PIPE_CLOSED = 130, 141


def main() -> None:
    """Entry point of the program."""
    sys.exit(command(sys.argv[1:]))


def command(arguments: list[str]) -> int:
    """Run one verb; its exit code."""
    from pie_cli.app import app
    from pie_cli.run import AppWords

    words = AppWords()
    if arguments[:1] == ["run"] and "--" in arguments:
        # What follows is the app's: it must not meet our option parser.
        cut = arguments.index("--")
        arguments, words.words = arguments[:cut], arguments[cut + 1 :]
    try:
        code = app(arguments, prog_name="pie", standalone_mode=False, obj=words)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; a flush at exit must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        from pie_cli.failures import explain

        return explain(error)


if __name__ == "__main__":
    main()
