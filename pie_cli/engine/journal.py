"""The engine's log: one line an event, `time level event key=value …`. A full disk stops nothing.

Bounded: of a file that is too long the end is kept.
The worker and the zygote write to the same file, in their own words.
"""

import os
import re
import time
from contextlib import suppress

MAX_SIZE = 64 << 20  # bytes of a log, and what of them is kept beyond
KEPT_SIZE = 8 << 20
LINES_BETWEEN_LOOKS = 1000

_PLAIN = re.compile(r"[\w.:/@+,-]+")


class Journal:
    """Appends to a file. Values that are not plain words are quoted, on one line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._num_lines = 0
        self._file = -1
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)

    def info(self, event: str, **facts: object) -> None:
        self._write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._write("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, object]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        words = [f"{stamp}.{int(now % 1 * 1000):03}Z", level, event]
        words += [f"{key}={_value(value)}" for key, value in facts.items() if value is not None]
        with suppress(OSError):
            os.write(self._file, (" ".join(words) + "\n").encode("utf-8", "backslashreplace"))
            self._num_lines += 1
            if self._num_lines % LINES_BETWEEN_LOOKS == 0:
                self._shorten()

    def _shorten(self) -> None:
        """Keep the end of a file that has become too long. Its other writers append, too."""
        size = os.fstat(self._file).st_size
        if size <= MAX_SIZE:
            return
        with open(self._path, "rb") as file:
            file.seek(size - KEPT_SIZE)
            end = file.read(KEPT_SIZE)
        os.ftruncate(self._file, 0)
        os.write(self._file, end[end.find(b"\n") + 1 :])


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if _PLAIN.fullmatch(text):
        return text
    escaped = "".join(x if x.isprintable() else _spelled(x) for x in text.replace("\\", "\\\\"))
    escaped = escaped.replace('"', '\\"')
    return f'"{escaped}"'


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode()
