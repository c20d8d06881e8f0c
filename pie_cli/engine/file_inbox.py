"""Files for one process's `receive_file`: kept on disk until the app asks. Knows no sockets.

Small ones stay in memory. Writing takes microseconds as long as the disk keeps up.
"""

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import IO

from ipc import client as c
from ipc import messages as m

MAX_WAITING = 64  # files
MAX_BYTES = 1 << 30  # of all that wait
MAX_REFUSED = 1024  # files that are kept in mind
IN_MEMORY = 64 << 10  # bytes of a file that are not worth a file


@dataclass
class _Incoming:
    """A file that is not complete."""

    size: int
    file: IO[bytes]
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    received: int = 0


def remember(refused: set[Hashable], key: Hashable) -> None:
    """A file whose other parts are to be ignored. Of too many, all are forgotten: each of their
    other parts is answered, too."""
    if len(refused) >= MAX_REFUSED:
        refused.clear()
    refused.add(key)


class FileInbox:
    """Complete files in order of completion, and those that still come."""

    def __init__(self, folder: str) -> None:
        """`folder`: where there is room for files without a name."""
        self._folder = folder
        self._incoming: dict[Hashable, _Incoming] = {}
        self._refused: set[Hashable] = set()  # files whose other parts are to be ignored
        self._complete: deque[tuple[int, IO[bytes]]] = deque()
        self._bytes = 0
        self._asked = 0  # files that the app waits for
        self._sending: tuple[int, IO[bytes]] | None = None
        self._closed = self._told_closed = False

    def __len__(self) -> int:
        return len(self._complete)

    def put(self, key: Hashable, part: c.FilePart) -> tuple[str, str] | None:
        """What became of the file `key`, and why; None while more is to come."""
        if key in self._refused:
            self._refused.discard(key) if part.sha256 else None
            return None
        incoming = self._incoming.get(key)
        if incoming is None:
            if outcome := self._refusal(part):
                return self._refuse(key, part, outcome)
            file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=self._folder)  # noqa: SIM115
            incoming = self._incoming[key] = _Incoming(part.size, file)
            self._bytes += part.size
        try:
            if part.size > IN_MEMORY:
                os.makedirs(self._folder, exist_ok=True)
            incoming.file.write(part.data)
            if part.sha256:
                incoming.file.flush()
        except OSError as error:
            self.forget(key)
            return self._refuse(key, part, c.FAILED, f"the engine cannot keep it: {error.strerror}")
        incoming.hash.update(part.data)
        incoming.received += len(part.data)
        if incoming.received < incoming.size and not part.sha256:
            return None
        if incoming.received != incoming.size or part.sha256 != incoming.hash.digest():
            self.forget(key)
            return self._refuse(key, part, c.DAMAGED)
        del self._incoming[key]
        self._complete.append((incoming.size, incoming.file))
        return c.ACCEPTED, ""

    def ask(self) -> None:
        """The app waits for one more file."""
        self._asked += 1

    def end(self) -> None:
        """The client's end is closed: what has come is still given."""
        self._closed = True

    def next_parts(self) -> Iterator[m.FilePart | m.FilesClosed]:
        """What may be given now. Stop taking when the process has no room."""
        while self._sending or (self._asked and self._complete):
            if self._sending is None:
                self._asked -= 1
                size, file = self._sending = self._complete.popleft()
                file.seek(0)
            size, file = self._sending
            data = file.read(c.FILE_PART)
            if file.tell() == size:
                self._sending = None
                self._bytes -= size
                file.close()
            yield m.FilePart(size, data)
        if self._closed and not self._told_closed and not self._incoming and not self._complete:
            self._told_closed = True
            yield m.FilesClosed()

    def forget(self, key: Hashable) -> None:
        """No more of an incomplete file will come."""
        if incoming := self._incoming.pop(key, None):
            self._bytes -= incoming.size
            incoming.file.close()

    def forget_all_of(self, first: Hashable) -> None:
        """The same for all files whose key begins so."""
        for key in [key for key in self._incoming if key[0] == first]:
            self.forget(key)
        self._refused = {key for key in self._refused if key[0] != first}

    def close(self) -> None:
        for key in list(self._incoming):
            self.forget(key)
        for _, file in self._complete:
            file.close()
        if self._sending:
            self._sending[1].close()
        self._complete.clear()
        self._sending = None

    def _refusal(self, part: c.FilePart) -> str:
        if not 0 <= part.size <= c.MAX_FILE:
            return c.DAMAGED
        if self._told_closed:
            return c.CLOSED
        num_files = len(self._complete) + len(self._incoming)
        if num_files >= MAX_WAITING or self._bytes + part.size > MAX_BYTES:
            return c.FULL
        return ""

    def _refuse(
        self, key: Hashable, part: c.FilePart, outcome: str, reason: str = ""
    ) -> tuple[str, str]:
        if not part.sha256:
            remember(self._refused, key)
        return outcome, reason
