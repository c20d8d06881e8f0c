"""Tells when files change: by inotify, and where that is not to be had by looking at them.

Folders are watched rather than files, since most editors save by renaming a new file; of a link
also the folder of what it points to.
"""

import ctypes
import os
import select
import threading
import time
from collections.abc import Iterable
from pathlib import Path

POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.02  # in which the further steps of one save are awaited
_CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE, _MOVED_FROM = 0x8, 0x80, 0x100, 0x200, 0x40
_MASK = _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE | _MOVED_FROM
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_libc = ctypes.CDLL(None, use_errno=True)

Fingerprint = tuple[int, int, int] | None


class Changes:
    """Watches a set of files. `descriptor` is readable when one may have changed."""

    def __init__(self, with_inotify: bool = True) -> None:
        self._files: dict[Path, Fingerprint] = {}
        self._folders: set[Path] = set()
        self._poller: threading.Thread | None = None
        self.descriptor = _libc.inotify_init1(_CLOEXEC_NONBLOCK) if with_inotify else -1
        self._writer = -1
        if self.descriptor < 0:
            self._poll()

    def watch(self, files: Iterable[Path]) -> None:
        """From now on these are the files; as they are now, they are not changed."""
        self._files = {path: fingerprint(path) for path in files}
        if self._poller:
            return
        places = {*self._files, *(Path(os.path.realpath(path)) for path in self._files)}
        for folder in {path.parent for path in places} - self._folders:
            if _libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _MASK) < 0:
                self._poll()
                return
            self._folders.add(folder)

    def changed(self) -> list[Path]:
        """Those that have changed since `watch`, once the save has settled."""
        found = self._drain()
        while found and select.select([self.descriptor], [], [], SETTLE_SECONDS)[0]:
            self._drain()
        return [path for path, before in self._files.items() if fingerprint(path) != before]

    def close(self) -> None:
        poller, self._poller = self._poller, None
        if poller:
            poller.join()
            os.close(self._writer)
        os.close(self.descriptor)

    def _drain(self) -> bool:
        try:
            return bool(os.read(self.descriptor, 1 << 16))
        except BlockingIOError:
            return False

    def _poll(self) -> None:
        """Look at the files from a thread, which writes to a pipe when one has changed."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor, self._writer = os.pipe2(_CLOEXEC_NONBLOCK)
        self._poller = threading.Thread(target=self._look, daemon=True)
        self._poller.start()

    def _look(self) -> None:
        told: dict[Path, Fingerprint] = {}
        while self._poller is not None:
            now = {path: fingerprint(path) for path in self._files}
            if now not in (told, self._files):
                os.write(self._writer, b"!")
            told = now
            time.sleep(POLL_SECONDS)


def fingerprint(path: Path) -> Fingerprint:
    """What differs once a file was written anew; None for no file."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
