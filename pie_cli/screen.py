"""What `pie run` shows of its processes: for people, or one JSON object a line. Decides nothing."""

import json
import sys
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Protocol

from ipc import client as c
from pie_cli.output import ProgressBar, error, go_to_one_place, note

RAISED = 1


@dataclass(frozen=True)
class Style:
    """How results and messages are written."""

    raw: bool = False  # a str result without quotes
    one_line: bool = False  # the result on one line on a terminal too
    stream: bool = False  # text messages on stdout, the result on stderr
    several: bool = False  # there are copies: errors name theirs


class Screen(Protocol):
    """One method for each thing that happens; `result` comes in the order of the copies."""

    def starting(self, model: str) -> None: ...
    def progress(self, fraction: float, text: str) -> None: ...
    def queued(self, event: c.Queued) -> None: ...
    def launched(self, event: c.Launched, app: str, model: str) -> None: ...
    def sent(self, event: c.Sent) -> None: ...
    def printed(self, event: c.Printed) -> None: ...
    def stored(self, event: c.Stored) -> None: ...
    def returned(self, event: c.Returned) -> None:
        """At once."""

    def result(self, event: c.Returned) -> None:
        """When all earlier copies have ended."""

    def failed(self, event: c.Error) -> None: ...
    def lost(self, event: c.Error) -> None:
        """A process is lost with the engine, about which the command says an error itself."""

    def interrupted(self) -> None:
        """Ctrl-C was pressed; the end comes."""

    def close(self) -> None: ...


class PlainScreen:
    """For people: the result alone on stdout, everything else on stderr."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._bar = ProgressBar()
        self._told_queued: set[str] = set()
        self._open_line = ""  # what kind of text left the cursor within a line of stderr
        self._stream_open = False  # the same for streamed text, where both go to one place
        self._one_place = go_to_one_place(sys.stdout, sys.stderr)

    def starting(self, model: str) -> None:
        if not sys.stderr.isatty():
            note(f"starting the engine with `{model}`")

    def progress(self, fraction: float, text: str) -> None:
        if sys.stderr.isatty():
            self._bar.show(fraction, text)

    def queued(self, event: c.Queued) -> None:
        """On a terminal the place is told as it changes, elsewhere once."""
        self._bar.clear()
        name = f"{event.process}: " if self._style.several else ""
        if event.process not in self._told_queued or sys.stderr.isatty():
            self._write_line(f"{name}waits, {event.position} in the queue: {event.reason}")
        self._told_queued.add(event.process)

    def launched(self, event: c.Launched, app: str, model: str) -> None:
        self._bar.clear()

    def sent(self, event: c.Sent) -> None:
        if event.is_json:
            self._write_line(readable(event.text))
        elif self._style.stream:
            sys.stdout.write(event.text)
            sys.stdout.flush()
            self._stream_open = self._one_place and not event.text.endswith("\n")
        else:
            self._write(event.text, "message")

    def printed(self, event: c.Printed) -> None:
        self._write(event.text, event.stream)

    def stored(self, event: c.Stored) -> None:
        if event.error:
            self._write_line(f"warning: a file was not stored as `{event.path}`: {event.error}")
        else:
            self._write_line(f"file: {event.path} ({event.size:,} bytes)")

    def returned(self, event: c.Returned) -> None:
        pass

    def result(self, event: c.Returned) -> None:
        text = self._format(event.value)
        if self._style.stream:
            self._write_line(text)
            return
        if self._one_place:
            self._end_line()
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def failed(self, event: c.Error) -> None:
        self._bar.clear()
        self._end_line()
        if event.traceback:
            frames = event.traceback.rstrip("\n")
            sys.stderr.write(f"Traceback (most recent call last):\n{frames}\n")
        error((f"{event.process}: " if self._style.several else "") + describe(event))

    def lost(self, event: c.Error) -> None:
        self._end_line()

    def interrupted(self) -> None:
        if sys.stderr.isatty():
            self._open_line = "^C"  # which the terminal has shown

    def close(self) -> None:
        """Leave the cursor of a terminal at the beginning of a line."""
        self._bar.clear()
        if sys.stderr.isatty():
            self._end_line()

    def _format(self, value: str) -> str:
        if self._style.raw and value.startswith('"'):
            return json.loads(value)
        if self._style.one_line or not sys.stdout.isatty() or not value.startswith(("{", "[")):
            return readable(value)
        try:
            return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
        except RecursionError:
            return value

    def _write(self, text: str, kind: str) -> None:
        """Text as it is; a line that another kind left open is ended first."""
        if not text:
            return
        if self._open_line != kind:
            self._end_line()
        sys.stderr.write(text)
        sys.stderr.flush()
        self._open_line = "" if text.endswith("\n") else kind

    def _write_line(self, text: str) -> None:
        self._end_line()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def _end_line(self) -> None:
        if self._open_line or self._stream_open:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._open_line, self._stream_open = "", False


class DetachedScreen(PlainScreen):
    """The process ids alone, one a line of stdout."""

    def __init__(self) -> None:
        super().__init__(Style())
        self._told: set[str] = set()

    def queued(self, event: c.Queued) -> None:
        super().queued(event)
        self._tell(event.process)

    def launched(self, event: c.Launched, app: str, model: str) -> None:
        super().launched(event, app, model)
        self._tell(event.process)

    def _tell(self, process: str) -> None:
        if process not in self._told:
            self._told.add(process)
            sys.stdout.write(process + "\n")
            sys.stdout.flush()


class EventScreen:
    """For programs: every event is a JSON object on a line of stdout. Errors are on stderr too."""

    def __init__(self, several: bool = False) -> None:
        self._errors = PlainScreen(Style(several=several))

    def starting(self, model: str) -> None:
        self._errors.starting(model)

    def progress(self, fraction: float, text: str) -> None:
        self._errors.progress(fraction, text)

    def queued(self, event: c.Queued) -> None:
        self._errors.queued(event)

    def launched(self, event: c.Launched, app: str, model: str) -> None:
        self._errors.launched(event, app, model)
        self._write("launched", event, app=app, model=model, sandbox=event.sandbox)

    def sent(self, event: c.Sent) -> None:
        text = event.text if event.is_json else json.dumps(event.text, ensure_ascii=False)
        self._write("message", event, {"message": text})

    def printed(self, event: c.Printed) -> None:
        self._write(event.stream, event, text=event.text)

    def stored(self, event: c.Stored) -> None:
        if event.error:
            self._errors.stored(event)
        else:
            self._write("file", event, path=event.path, size=event.size, sha256=event.sha256)

    def returned(self, event: c.Returned) -> None:
        self._write("return", event, {"value": event.value})

    def result(self, event: c.Returned) -> None:
        pass

    def failed(self, event: c.Error) -> None:
        self.lost(event)
        self._errors.failed(event)

    def lost(self, event: c.Error) -> None:
        self._write(
            "error", event, type=event.error, message=event.message, traceback=event.traceback,
            exit=event.exit, limit=event.limit,
        )  # fmt: skip

    def interrupted(self) -> None:
        self._errors.interrupted()

    def close(self) -> None:
        self._errors.close()

    def _write(
        self, kind: str, event: Any, texts: dict[str, str] | None = None, **fields: Any
    ) -> None:
        """`texts`: fields that are JSON already, however deeply nested."""
        line = {"event": kind, "time": event.time, "process": event.process, **fields}
        written = json.dumps(line, ensure_ascii=False)
        for name, text in (texts or {}).items():
            written = f'{written[:-1]}, "{name}": {readable(text)}}}'
        sys.stdout.write(written + "\n")
        sys.stdout.flush()


def make_screen(options: Namespace) -> Screen:
    """The screen that the options of `pie run` ask for."""
    sys.stdout.reconfigure(errors="replace")  # a character that cannot be printed ends nothing
    sys.stderr.reconfigure(errors="replace")
    if options.events:
        return EventScreen(several=(options.copies or 1) > 1)
    if options.detach:
        return DetachedScreen()
    several = options.copies is not None
    style = Style(options.raw, options.one_line or several, options.stream, several)
    if several and options.copies > 1:
        from pie_cli.screen_copies import CopiesScreen

        return CopiesScreen(style)
    return PlainScreen(style)


def readable(value: str) -> str:
    """JSON text with its characters as they are, where they can be written."""
    if "\\u" not in value:
        return value
    try:
        text = json.dumps(json.loads(value), ensure_ascii=False)
        text.encode()
    except (UnicodeEncodeError, RecursionError):  # half a surrogate pair; nested too deeply
        return value
    return text


def describe(event: c.Error) -> str:
    """The error in one sentence."""
    if event.exit != RAISED:
        return event.message
    return f"{event.error}: {event.message}" if event.message else event.error
