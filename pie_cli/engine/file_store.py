"""Files that one process sends: stored as `ID-1`, `ID-2`, … in its folder, never outside it.

A file has its name once it is complete; before, where the file system can, it has none at all, so
that the kernel removes it however this process ends. One that cannot be stored is said to be so.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from ipc import client as c
from ipc import messages as m
from ipc.errors import ProtocolError

MAX_BYTES = 4 << 30  # of all files of one process
MAX_FILES = 10_000
_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}


class FileStore:
    """The files of one process, one after the other."""

    def __init__(self, folder: str, id: str) -> None:
        """`id` is a name without a slash, and does not begin with a dot."""
        self._folder, self._id = folder, id
        self._number = 0
        self._total = 0
        self._file: IO[bytes] | None = None  # the open one; None: none, or it cannot be stored
        self._hash = hashlib.sha256()
        self._size = self._received = 0
        self._is_open = False
        self._has_name = False  # the open file
        self._error = ""

    @property
    def is_beyond(self) -> bool:
        """Whether the process has sent more than it may."""
        return self._total > MAX_BYTES or self._number > MAX_FILES

    def put(self, part: m.SendFilePart, process: str, time: float) -> c.Stored | None:
        """Word of the file once it is complete. ProtocolError when the parts make no file."""
        if not self._is_open:
            self._begin(part.size)
        self._received += len(part.data)
        self._total += len(part.data)
        if part.size != self._size or self._received > self._size:
            raise ProtocolError("parts of different files")
        self._hash.update(part.data)
        self._attempt(lambda: self._file and self._file.write(part.data))
        if not part.sha256:
            return None
        if self._received != self._size or part.sha256 != self._hash.digest():
            raise ProtocolError("a file's size or SHA-256 is not that of its parts")
        self._attempt(self._finish)
        self._is_open = False
        return c.Stored(
            process, time, self._number, self._path, self._size, part.sha256.hex(), self._error
        )

    def close(self) -> None:
        """The process has ended: an incomplete file goes."""
        self._discard()

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, f"{self._id}-{self._number}")

    @property
    def _part(self) -> str:
        return os.path.join(self._folder, f".{self._id}-{self._number}.part")

    def _begin(self, size: int) -> None:
        if not 0 <= size <= c.MAX_FILE:
            raise ProtocolError(f"a file of {size} bytes; at most {c.MAX_FILE}")
        self._is_open, self._error = True, ""
        self._number += 1
        self._size, self._received, self._hash = size, 0, hashlib.sha256()
        self._attempt(self._open)

    def _open(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(self._part)
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            descriptor = os.open(self._folder, flags | os.O_TMPFILE, 0o666)
            self._has_name = False
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
            flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(self._part, flags, 0o666)
            self._has_name = True
        self._file = open(descriptor, "wb")  # noqa: SIM115

    def _finish(self) -> None:
        if self._file:
            self._file.flush()
            if not self._has_name:  # a link never replaces a file, a rename does
                _give_name(self._file.fileno(), self._part)
                self._has_name = True
            self._file.close()
            self._file = None
            os.replace(self._part, self._path)

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            self._error = f"{error.strerror or error} ({self._folder})"
            self._discard()

    def _discard(self) -> None:
        if self._file:
            with suppress(OSError):
                self._file.close()
            self._file = None
            if self._has_name:
                with suppress(OSError):
                    os.unlink(self._part)


def read_part(path: str, offset: int) -> tuple[bytes, str]:
    """(bytes of a stored file from `offset` on, why there are none)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return b"", error.strerror
    try:
        return os.pread(descriptor, c.FILE_PART, offset), ""
    except (OSError, OverflowError, ValueError) as error:
        return b"", getattr(error, "strerror", None) or str(error)
    finally:
        os.close(descriptor)


def _give_name(descriptor: int, path: str) -> None:
    """As linkat(2) describes it; Python follows the link only when it is relative to a folder."""
    folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(str(descriptor), path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)
