"""The store's command: arguments, JSON lines, exit codes. What it does is in `worker.store`."""

import argparse
import errno
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from worker.store import Store, home
from worker.store_facts import StoreError

PROGRESS_SECONDS = 0.1


class Output:
    """Writes what happens: JSON lines for a program, or plain lines for a person."""

    def __init__(self, json_lines: bool) -> None:
        self._json_lines = json_lines
        self._last: tuple[str, float] = ("", 0.0)

    def progress(self, what: str, done: int, total: int | None) -> None:
        """A step forward; those that follow too soon after another are dropped."""
        last_what, last_time = self._last
        now = time.monotonic()
        finished = done == total
        if what == last_what and (not finished and now - last_time < PROGRESS_SECONDS):
            return
        self._last = (what, now)
        if self._json_lines:
            self._write({"progress": {"what": what, "done": done, "total": total}})
        elif what != last_what:
            print(what, file=sys.stderr, flush=True)

    def result(self, value: Any) -> None:
        """The end of a verb that succeeded."""
        self._write({"result": value} if self._json_lines else value)

    def error(self, message: str, hint: str | None) -> None:
        """The end of a verb that failed."""
        if self._json_lines:
            self._write({"error": {"message": message, "hint": hint}})
            return
        print(f"error: {message}", file=sys.stderr)
        if hint:
            print(f"\nhint: {hint}", file=sys.stderr)

    def _write(self, value: Any) -> None:
        # One call: downloads report from several threads.
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; the result is the exit code."""
    options = _parser().parse_args(arguments)
    output = Output(options.json_lines)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        output.result(_run(options, Store(home()), output))
        return 0
    except StoreError as error:
        output.error(str(error), error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 3  # whoever asked is gone
    except OSError as error:
        output.error(*_explain(error))
        return 3


def _end(number: int, _: object) -> None:
    """The first signal ends the verb; others must not cut short the removal of a half model."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, lambda *_: None)  # SIG_IGN would complain about one that is pending
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _run(options: argparse.Namespace, store: Store, output: Output) -> Any:
    match options.verb:
        case "list":
            return store.list()
        case "add":
            return store.show(store.add(options.source, options.name, output.progress))
        case "show":
            return store.show(options.name)
        case "remove":
            return store.remove(options.name)
        case "default":
            return {"name": store.set_default(options.name)}
        case "resolve":
            return store.resolve(options.name, output.progress)


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json-lines", action="store_true")
    parser = argparse.ArgumentParser(prog="python -m worker.store", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", parents=[common])
    add = verbs.add_parser("add", parents=[common])
    add.add_argument("source")
    add.add_argument("--name")
    for verb in ("show", "remove", "default"):
        verbs.add_parser(verb, parents=[common]).add_argument("name")
    verbs.add_parser("resolve", parents=[common]).add_argument("name", nargs="?")
    return parser


def _explain(error: OSError) -> tuple[str, str | None]:
    where = f" at `{Path(error.filename)}`" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{where}", "free some space, or set PIE_HOME to another disk"
    return f"{error.strerror or error}{where}", None
