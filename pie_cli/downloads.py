"""Files of apps on an engine elsewhere: fetched, and stored here as an engine here would.

A Stored names a place on the engine's machine. It is held back, with all that the process says
after it, until the file lies on this machine, and then names that place.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ipc import client as c
from pie_cli import settings
from pie_cli.config import NAME

AHEAD = 8  # parts that are asked for before one has come
FIRST_REQUEST = 1 << 40  # nobody else numbers requests so high


class Download:
    """One file on its way."""

    def __init__(
        self, stored: c.Stored, folder: Path, ask: Callable[["Download", int], None]
    ) -> None:
        """`ask` for what begins at an offset: `add` gets the answers, in that order."""
        self.stored, self.error = stored, _fault(stored)
        self._path = folder / ("unnamed" if self.error else f"{stored.process}-{stored.number}")
        self._part = folder / f".{self._path.name}.{os.getpid()}.part"
        self._ask, self._asked, self._num_waiting = ask, 0, 0
        self._hash, self._file = hashlib.sha256(), None
        if not self.error:
            self._open(folder)
        self._ask_ahead()

    def _open(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._part.open("wb")
        except OSError as error:
            self.error = f"{error.strerror} ({folder})"

    @property
    def is_done(self) -> bool:
        return self._num_waiting == 0

    def add(self, data: c.FileData) -> None:
        self._num_waiting -= 1
        self.error = self.error or data.error
        if self.error:
            return
        self._hash.update(data.data)
        try:
            self._file.write(data.data)
        except OSError as error:
            self.error = f"{error.strerror} ({self._part.parent})"
        self._ask_ahead()

    def finish(self) -> c.Stored:
        """Where it lies now; or why not."""
        if not self.error and self._hash.hexdigest() != self.stored.sha256:
            self.error = "it has changed where the engine runs"
        try:
            if self._file:
                self._file.close()
            if not self.error:
                self._part.replace(self._path)
        except OSError as error:
            self.error = f"{error.strerror} ({self._path.parent})"
        self.close()
        return msgspec.structs.replace(self.stored, path=str(self._path), error=self.error)

    def close(self) -> None:
        """Leave no file that is not complete."""
        with suppress(OSError):
            if self._file:
                self._file.close()
        self._part.unlink(missing_ok=True)

    def _ask_ahead(self) -> None:
        while not self.error and self._num_waiting < AHEAD and self._asked < self.stored.size:
            self._num_waiting += 1
            self._ask(self, self._asked)
            self._asked += c.FILE_PART


def _fault(stored: c.Stored) -> str:
    """Why there can be no such file: an engine elsewhere is not trusted with names and sizes."""
    if not NAME.fullmatch(stored.process):
        return f"{stored.process!r} is no process"
    if not 0 <= stored.size <= c.MAX_FILE:
        return f"a file of {stored.size} bytes; at most {c.MAX_FILE}"
    return ""


class Downloads:
    """Of one connection: every message passes through here, in both directions."""

    def __init__(self, send: Callable[[c.FromClient], None]) -> None:
        self._send = send
        self._last_request = FIRST_REQUEST
        self._folders: dict[int | str, str] = {}  # of a request, then of its process
        self._by_request: dict[int, Download] = {}
        self._held: dict[str, deque[c.FromHub]] = {}  # by process; the first is the open download's

    def sent(self, message: c.FromClient) -> c.FromClient:
        """What the engine is to hear of it."""
        if not isinstance(message, c.Run):
            return message
        self._folders[message.request] = message.files_folder
        return msgspec.structs.replace(message, client=None, files_folder="")

    def received(self, message: c.FromHub) -> list[c.FromHub]:
        """What the client may hear now."""
        if isinstance(message, c.Unknown) and message.request in self._by_request:
            message = c.FileData(message.request, message.process, b"", "it is forgotten")
        if isinstance(message, c.FileData):
            return self._add(message)
        if isinstance(message, c.Queued | c.Launched) and message.request in self._folders:
            self._folders[message.process] = self._folders[message.request]
        process = getattr(message, "process", None)
        if held := self._held.get(process):
            held.append(message)
            return []
        if isinstance(message, c.Stored) and not message.error:
            self._held[process] = deque([message])
            return self._go_on(process)
        return [message]

    def close(self) -> None:
        for download in set(self._by_request.values()):
            download.close()

    def _add(self, data: c.FileData) -> list[c.FromHub]:
        download = self._by_request.pop(data.request, None)
        if download is None:
            return []
        download.add(data)
        if not download.is_done:
            return []
        process = download.stored.process
        self._held[process].popleft()
        return [download.finish(), *self._go_on(process)]

    def _go_on(self, process: str) -> list[c.FromHub]:
        """What is held back of a process, up to the next file."""
        held, free = self._held[process], []
        while held:
            message = held[0]
            if isinstance(message, c.Stored) and not message.error:
                download = self._start(message)
                if not download.is_done:
                    return free
                message = download.finish()  # empty, or it cannot be stored
            free.append(message)
            held.popleft()
        del self._held[process]
        return free

    def _start(self, stored: c.Stored) -> Download:
        folder = self._folders.get(stored.process) or settings.home() / "files"
        return Download(stored, Path(folder), self._ask)

    def _ask(self, download: Download, offset: int) -> None:
        self._last_request += 1
        self._by_request[self._last_request] = download
        stored = download.stored
        self._send(c.ReadFile(self._last_request, stored.process, stored.number, offset))
