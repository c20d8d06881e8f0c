"""Follows a process that another command launched. It outlives this one."""

import sys

from ipc import client as c
from pie_cli.connection import Connection
from pie_cli.output import note
from pie_cli.run_loop import INTERRUPTED, Copy, RunLoop
from pie_cli.screen import Screen
from pie_cli.stdin_lines import StdinLines


class AttachLoop(RunLoop):
    """From Attached to the terminal message, or to Ctrl-C."""

    def __init__(
        self, connection: Connection, attached: c.Attached, screen: Screen, stdin: StdinLines | None
    ) -> None:
        super().__init__(connection, [], screen, stdin)
        copy = Copy(None, attached.app)
        copy.process = attached.process
        self._copies = [copy]
        self._by_process = {attached.process: copy}
        self._attached = attached

    def _begin(self) -> None:
        told = self._attached
        launched = c.Launched(0, told.process, told.time, told.sandbox)
        self._screen.launched(launched, told.app, told.model)

    def _interrupt(self) -> None:
        self._screen.interrupted()
        self._leave()
        self._end(self._copies[0], INTERRUPTED)

    def _end_of_stdin(self, processes: list[str]) -> None:
        """The process has other clients: its inbox stays open. Ctrl-D on a terminal leaves."""
        if sys.stdin.isatty():
            self._leave()
            self._end(self._copies[0], 0)

    def _leave(self) -> None:
        process = self._copies[0].process
        self._connection.send(c.Detach(process))
        self._screen.close()
        note(f"left `{process}`, which goes on; `pie kill {process}` ends it")
