"""Ids of processes: each names one process among all engines of one PIE_HOME.

Where the files for that cannot be had, an engine is on its own. Waits for nobody.
"""

import fcntl
import os
from contextlib import suppress

_TRIES = 100  # of a lock that others hold for microseconds


class Ids:
    """Numbers that rise, and names that are taken until they are released."""

    def __init__(self, counter: str, names: str) -> None:
        """`counter`: a file that holds the last number. `names`: a folder with a file a name."""
        self._counter, self._names = counter, names
        self._last = 0
        self._held: dict[str, int] = {}  # name -> descriptor that holds its lock

    def next_number(self) -> int:
        """Higher than all before, of any engine and in any order of starts."""
        number = 0
        with suppress(OSError, ValueError):
            number = self._count()
        self._last = max(number, self._last + 1)
        return self._last

    def _count(self) -> int:
        descriptor = os.open(self._counter, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            number = max(int(os.read(descriptor, 32) or b"0"), self._last) + 1
            os.pwrite(descriptor, b"%d\n" % number, 0)
            return number
        finally:
            os.close(descriptor)

    def take(self, name: str) -> bool:
        """Whether no live process of another engine has that name."""
        try:
            os.makedirs(self._names, mode=0o700, exist_ok=True)
            descriptor = self._open(name)
        except OSError:
            return True
        if descriptor is None:
            return False
        self._held[name] = descriptor
        return True

    def release(self, name: str) -> None:
        descriptor = self._held.pop(name, None)
        if descriptor is None:
            return
        with suppress(OSError):
            os.unlink(os.path.join(self._names, name))
        os.close(descriptor)

    def _open(self, name: str) -> int | None:
        """The locked file of a name; None: another engine holds it."""
        path = os.path.join(self._names, name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            os.close(descriptor)  # it was released, and removed, between the two calls


def _lock(descriptor: int) -> None:
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    raise TimeoutError("somebody holds the lock")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(facts, os.fstat(descriptor))
