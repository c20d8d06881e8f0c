"""Lines of stdin for the inboxes of processes. Reads only when asked, and no more than has room."""

import codecs
import os
from collections import deque

from pie_cli.usage import UsageError

MAX_WAITING = 1000  # messages that a process may have untaken
MAX_LINE = 16 << 20  # characters
_READ_SIZE = 64 << 10


class StdinLines:
    """Cuts stdin into lines. `room` says how many may be given out now."""

    def __init__(self, descriptor: int | None = 0) -> None:
        """None: stdin was read already, there are no lines."""
        self.descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._lines: deque[str] = deque()
        self._ended = descriptor is None or not _is_open(descriptor)
        self._told_end = False
        self._untaken: dict[str, int] = {}

    def add(self, process: str) -> None:
        """The process will get the lines that are given out from now on."""
        self._untaken.setdefault(process, 0)

    def remove(self, process: str) -> None:
        self._untaken.pop(process, None)

    def taken(self, process: str, count: int) -> None:
        if process in self._untaken:
            self._untaken[process] -= count

    def renew(self) -> None:
        """Other processes come, which have not been told of the end."""
        self._told_end = False

    @property
    def processes(self) -> list[str]:
        return list(self._untaken)

    @property
    def wants_reading(self) -> bool:
        """Whether to wait for the descriptor."""
        return bool(self._untaken) and not self._ended and not self._lines

    def read(self) -> None:
        """Read once; the descriptor is readable."""
        try:
            data = os.read(self.descriptor, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._partial += self._decoder.decode(data, final=not data)
        *lines, self._partial = self._partial.split("\n")
        self._lines += (line.removesuffix("\r") for line in lines)
        if not data:
            self._ended = True
            if self._partial:
                self._lines.append(self._partial)
                self._partial = ""
        elif len(self._partial) > MAX_LINE:
            raise UsageError(
                f"a line of stdin is longer than {MAX_LINE:,} characters",
                "`--no-stdin` leaves stdin alone, `--file NAME=PATH` attaches what is large",
            )

    def next(self) -> str | None:
        """The next line, when there is one and every process has room for it."""
        if not self._lines or not self._untaken or max(self._untaken.values()) >= MAX_WAITING:
            return None
        for process in self._untaken:
            self._untaken[process] += 1
        return self._lines.popleft()

    def takes_end(self) -> bool:
        """True once, when all lines were given out and stdin has ended."""
        if self._told_end or not self._untaken or self._lines or not self._ended:
            return False
        self._told_end = True
        return True


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
