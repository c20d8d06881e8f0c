"""`pie run --watch`: launches anew whenever the app, its modules or its files change."""

import select
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from ipc import client as c
from pie_cli.app_source import module_files, read_app
from pie_cli.changes import Changes
from pie_cli.connection import Connection
from pie_cli.failures import explain
from pie_cli.output import end_interrupted_line, note
from pie_cli.run import connect
from pie_cli.run_loop import INTERRUPTED, Interrupts, RunLoop
from pie_cli.screen import make_screen
from pie_cli.stdin_lines import StdinLines
from pie_cli.usage import UsageError


class Watch:
    """One `pie run --watch`, until Ctrl-C. Keeps its connection from launch to launch."""

    def __init__(
        self, options: Namespace, launches: Callable[[], list[c.Run]], stdin: StdinLines | None
    ) -> None:
        """`launches` reads everything anew; it raises UsageError."""
        self._options, self._launches, self._stdin = options, launches, stdin
        self._changes = Changes()
        self._connection: Connection | None = None

    def run(self) -> int:
        """The exit code. Only the first launch's faults of usage end it."""
        self._changes.watch(watched_files(self._options))
        try:
            interrupted = self._launch(self._launches())
            while not interrupted:
                interrupted = self._wait() or self._launch_again()
            return INTERRUPTED
        finally:
            self._changes.close()
            if self._connection:
                self._connection.close()

    def _launch_again(self) -> bool:
        try:
            self._changes.watch(watched_files(self._options))
            return self._launch(self._launches())
        except UsageError as error:  # saved half-way, or removed: it may come to be right
            explain(error)
            return False

    def _launch(self, runs: list[c.Run]) -> bool:
        """Follow one launch to its end, or to a change. Whether it was interrupted."""
        screen = make_screen(self._options)
        if self._connection and self._connection.engine_ended():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = connect(self._options, screen)
        if self._stdin:
            self._stdin.renew()
        loop = RunLoop(self._connection, runs, screen, self._stdin, self._changes)
        loop.run()
        if loop.refusal:
            explain(UsageError(loop.refusal.message, loop.refusal.hint))
        return loop.interrupted

    def _wait(self) -> bool:
        """Return once a file has changed, or with True after Ctrl-C."""
        told = False
        with Interrupts() as interrupts:
            while not (changed := self._changes.changed()):
                if not told:
                    note("waiting for a change; Ctrl-C ends")
                told = True
                select.select([self._changes.descriptor, interrupts.descriptor], [], [])
                if interrupts.count:
                    end_interrupted_line()
                    note("the watch has ended")
                    return True
        note(f"{changed[0].name} has changed")
        return interrupts.count > 0


def watched_files(options: Namespace) -> Iterator[Path]:
    """All that a launch reads, as absolute paths."""
    yield Path(options.app).absolute()
    try:
        yield from module_files(options.app, read_app(options.app))
    except UsageError:
        pass  # said where it is launched
    for pair in options.files or []:
        yield Path(pair.partition("=")[2]).absolute()
    if (options.input or "").startswith("@"):
        yield Path(options.input[1:]).absolute()
