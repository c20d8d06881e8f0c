"""What `pie serve` shows: a bar while the model loads, one ready line, and that it is leaving."""

import signal
import sys

from ipc import client as c
from ipc import messages as m
from pie_cli.addresses import Listener
from pie_cli.engine.options import Front
from pie_cli.output import ProgressBar, end_interrupted_line, note


class Foreground(Front):
    """The ready line is all of stdout; only a terminal hears of what comes before and after."""

    def __init__(self, log: str, listener: Listener | None) -> None:
        self._log, self._listener = log, listener
        self._bar = ProgressBar()
        self._is_ready = False
        self._num_signals = 0

    def progress(self, progress: c.Progress) -> None:
        if sys.stderr.isatty() and not self._is_ready and not self._num_signals:
            self._bar.show(progress.fraction, progress.text)

    def ready(self, ready: m.Ready, sandbox: str) -> None:
        self._bar.clear()
        self._is_ready = True
        listener = self._listener
        listens = f"listens at {listener.address}, " if listener else ""
        model, engine = ready.model, ready.engine
        pages = f"{engine.num_pages:,} pages of {engine.page_size} tokens"
        print(
            f"ready: `{model.name}` on {engine.device} ({model.dtype}, {pages}), "
            f"sandbox: {sandbox}, {listens}log: {self._log}",
            flush=True,
        )
        if listener and listener.is_open:
            note(
                f"warning: other machines reach {listener.address}: whoever has a key runs programs"
            )
        if sandbox.startswith("none"):
            note("warning: inferlets run without a sandbox")

    def signalled(self, number: int) -> None:
        self._num_signals += 1
        if not sys.stderr.isatty():
            return
        self._bar.clear()
        if number == signal.SIGINT:
            end_interrupted_line()
        if self._num_signals == 1:
            note("the engine leaves, and ends its processes")
        else:
            note("asked twice: it waits for no process")

    def close(self) -> None:
        """Leave no bar behind, however it ended."""
        self._bar.clear()
