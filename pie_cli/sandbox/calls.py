"""System calls that Python has no function for, and what a process does to itself with them.

Each raises OSError with the call's name. Decides nothing: `linux.py` and `namespaces.py` do.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
libc.syscall.restype = ctypes.c_long
# The same with numbers alone: nothing is made of them, which counts in a process that was just
# forked and shares its memory (see `Step`).
_numbers_alone = libc["syscall"]
_numbers_alone.argtypes = [ctypes.c_long] * 7
_numbers_alone.restype = ctypes.c_long

_fork = ctypes.PyDLL(None, use_errno=True).fork  # a PyDLL keeps Python's lock


def check(name: str, result: int) -> int:
    """The result of a call, unless it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(name: str, number: int, *arguments: int | bytes) -> int:
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(name, libc.syscall(ctypes.c_long(number), *whole))


class Step(NamedTuple):
    """One call of a child on itself, made ready by its parent: a page that the child writes to is
    a page of its own, and most of Python's objects are written to by being used."""

    name: str
    numbers: tuple[int, ...]  # of the call, and its six arguments
    held: object = None  # what an argument points to


def step(name: str, number: int, *arguments: int, held: object = None) -> Step:
    return Step(name, (number, *arguments, *[0] * (6 - len(arguments))), held)


def take(steps: Iterable[Step]) -> None:
    """Makes the calls in order; OSError with the step's name at the first that fails."""
    for name, numbers, _ in steps:
        if _numbers_alone(*numbers) == -1:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")


def fork() -> int:
    """fork() of a process that has one thread, without what Python does in a child after it.

    The caller must seed `random` anew, and tell `threading` the thread's new number. The rest of
    Python's hooks makes locks anew that nobody holds, in 0.7 ms, and writes to a hundred pages that
    the child would share.
    """
    return check("fork", _fork())


def _prctl(option: int, value: int) -> None:
    check(f"prctl {option}", libc.prctl(option, value, 0, 0, 0))


def set_name(name: str) -> None:
    """What `ps` shows for this process; 15 bytes."""
    text = ctypes.create_string_buffer(name.encode())
    _prctl(_PR_SET_NAME, ctypes.addressof(text))


def quieten() -> None:
    """Signals as children shall have them: all default and let through, but Ctrl-C, which is for
    the engine to act on, and SIGPIPE."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ends_of_children() -> int:
    """A descriptor that can be read when a child has ended. SIGCHLD is blocked from now on: no
    handler is there that a child would have to take away."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    wanted = (ctypes.c_uint64 * 16)(1 << (signal.SIGCHLD - 1))
    return check("signalfd", libc.signalfd(-1, wanted, os.O_NONBLOCK | os.O_CLOEXEC))


def end_with(parent: int) -> None:
    """Be killed when `parent` ends, also while stopped. A change of user or rights forgets it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        raise OSError("the parent process has ended")


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor from 3 upwards that is not in `keep`."""
    for first, last in ranges_but(keep):
        check("close_range", libc.close_range(ctypes.c_uint(first), ctypes.c_uint(last), 0))


def ranges_but(keep: set[int]) -> list[tuple[int, int]]:
    """Ranges, with their last number, of all descriptors from 3 upwards that are not in `keep`."""
    low, ranges = 3, []
    for descriptor in sorted(number for number in keep if number >= low):
        if descriptor > low:
            ranges.append((low, descriptor - 1))
        low = descriptor + 1
    return [*ranges, (low, 0xFFFFFFFF)]


def drop_privileges() -> None:
    """Give up every capability, now and through exec. The zygote does it once for its children."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        # EINVAL ends the list of capabilities; EPERM: we have none that could be passed on.
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    header = struct.pack("=II", _CAPABILITY_VERSION_3, 0)
    check("capset", libc.capset(header, bytes(24)))
