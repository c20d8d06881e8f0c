"""What `pie run -n N` shows: whole lines, each with the id of its process. Decides nothing.

Results on stdout have no id: one a line, in the order of the copies.
"""

import sys
from typing import TextIO

from ipc import client as c
from pie_cli.output import paint
from pie_cli.screen import PlainScreen, Style, describe, readable

LONGEST = 64 << 10  # characters of a line that is waited for: then it is written as it is


class CopiesScreen(PlainScreen):
    """Keeps the open line of each process until it is whole, or the process has ended."""

    def __init__(self, style: Style) -> None:
        super().__init__(style)
        self._open: dict[tuple[str, bool], tuple[str, str]] = {}  # process, on stdout -> kind, text

    def sent(self, event: c.Sent) -> None:
        if event.is_json:
            self._flush(event.process, on_stdout=False)
            self._line(event.process, readable(event.text))
        else:
            self._add(event.process, "message", event.text, on_stdout=self._style.stream)

    def printed(self, event: c.Printed) -> None:
        self._add(event.process, event.stream, event.text)

    def stored(self, event: c.Stored) -> None:
        if event.error:
            text = f"warning: a file was not stored as `{event.path}`: {event.error}"
        else:
            text = f"file: {event.path} ({event.size:,} bytes)"
        self._line(event.process, text)

    def returned(self, event: c.Returned) -> None:
        self._flush_all(event.process)

    def result(self, event: c.Returned) -> None:
        if self._style.stream:
            self._line(event.process, self._format(event.value))
        else:
            super().result(event)

    def failed(self, event: c.Error) -> None:
        self._bar.clear()
        self._flush_all(event.process)
        if event.traceback:
            self._line(event.process, "Traceback (most recent call last):\n" + event.traceback)
        self._line(event.process, f"{paint('error:', '1;31')} {describe(event)}")

    def lost(self, event: c.Error) -> None:
        self._flush_all(event.process)

    def close(self) -> None:
        for process, _ in list(self._open):
            self._flush_all(process)
        super().close()

    # ---- lines

    def _add(self, process: str, kind: str, text: str, *, on_stdout: bool = False) -> None:
        """A line that another kind of text left open is ended first."""
        before_kind, before = self._open.get((process, on_stdout), (kind, ""))
        if before and before_kind != kind:
            self._flush(process, on_stdout)
            before = ""
        *lines, rest = (before + text).split("\n")
        if len(rest) > LONGEST:
            lines, rest = [*lines, rest], ""
        for line in lines:
            self._line(process, line, on_stdout=on_stdout)
        self._open[process, on_stdout] = kind, rest

    def _flush(self, process: str, on_stdout: bool) -> None:
        _, text = self._open.pop((process, on_stdout), ("", ""))
        if text:
            self._line(process, text, on_stdout=on_stdout)

    def _flush_all(self, process: str) -> None:
        for on_stdout in (True, False):
            self._flush(process, on_stdout)

    def _line(self, process: str, text: str, *, on_stdout: bool = False) -> None:
        """Each line of the text, with the id."""
        self._end_line()  # of a terminal, after ^C
        stream: TextIO = sys.stdout if on_stdout else sys.stderr
        lines = text.rstrip("\n").split("\n")
        stream.write("".join(f"{process}: {line}\n" for line in lines))
        stream.flush()
