"""What an attack is: a small function that returns when it succeeds and raises when blocked."""

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

import seccompy

from pie_cli.sandbox import policy

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(4096)  # where calls may write to

# What the sandbox says. In the tier `full` the things themselves are not there.
REFUSALS = {errno.EPERM, errno.EACCES}
ABSENCES = {errno.ENOENT, errno.ESRCH, errno.EROFS}


@dataclass(frozen=True)
class Attack:
    run: Callable[..., object]
    blocked_by: tuple[type[BaseException], ...] = ()  # instead of an errno of those above
    optional: bool = False  # some kernels and users cannot do it anyway
    open_in: frozenset[str] = frozenset()  # tiers that are known not to block it

    def is_blocked(self, error: BaseException, tier: str) -> bool:
        if self.blocked_by:
            return isinstance(error, self.blocked_by)
        errors = REFUSALS | (ABSENCES if tier == policy.FULL else set())
        return isinstance(error, OSError) and error.errno in errors


ATTACKS: dict[str, Attack] = {}


def attack(
    *blocked_by: type[BaseException], optional: bool = False, open_in: tuple[str, ...] = ()
) -> Callable:
    def register(function: Callable) -> Callable:
        ATTACKS[function.__name__] = Attack(function, blocked_by, optional, frozenset(open_in))
        return function

    return register


def raw(name: str, *arguments: object, title: str = "") -> None:
    """An attack that is one system call. Optional: kernels and users differ in what they may."""
    ATTACKS[title or name] = Attack(lambda: reaches_kernel(name, *arguments), optional=True)


def call(name: str | int, *arguments: object) -> int:
    """A raw system call; raises OSError."""
    number = seccompy.syscall_nr(name) if isinstance(name, str) else name
    whole = [ctypes.c_ulong(a & 2**64 - 1) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *whole)
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def reaches_kernel(name: str, *arguments: object) -> str:
    """Passes unless the call is refused as such: any other error means that it was executed."""
    try:
        return f"{name} returned {call(name, *arguments)}"
    except OSError as error:
        if error.errno == errno.ENOSYS:  # refused so that libc tries another one
            raise PermissionError(errno.EPERM, str(error)) from error
        if error.errno == errno.EPERM:
            raise
        return f"{name} was executed: {error}"
