"""System calls that Python has no function for, and what a process does to itself with them.

Each raises OSError with the call's name. Decides nothing: `linux.py` and `namespaces.py` do.
"""

import ctypes
import os
import signal
import struct

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
libc.syscall.restype = ctypes.c_long


def check(name: str, result: int) -> int:
    """The result of a call, unless it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(name: str, number: int, *arguments: int | bytes) -> int:
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(name, libc.syscall(ctypes.c_long(number), *whole))


def _prctl(option: int, value: int) -> None:
    check(f"prctl {option}", libc.prctl(option, value, 0, 0, 0))


def set_name(name: str) -> None:
    """What `ps` shows for this process; 15 bytes."""
    text = ctypes.create_string_buffer(name.encode())
    _prctl(_PR_SET_NAME, ctypes.addressof(text))


def reset_signals() -> None:
    """Default dispositions, except SIGINT: a Ctrl-C is for the engine to act on."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def die_with(parent: int) -> None:
    """Be killed when `parent` ends; forbid core dumps and tracing by others of our user.

    `parent` is 0 when it is outside our pid namespace.
    """
    end_with(parent)
    _prctl(_PR_SET_DUMPABLE, 0)


def end_with(parent: int) -> None:
    """Be killed when `parent` ends, also while stopped. A change of user or rights forgets it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        raise OSError("the parent process has ended")


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor from 3 upwards that is not in `keep`."""
    low = 3
    for descriptor in sorted(number for number in keep if number >= low):
        if descriptor > low:
            _close_range(low, descriptor - 1)
        low = descriptor + 1
    _close_range(low, 0xFFFFFFFF)


def _close_range(first: int, last: int) -> None:
    check("close_range", libc.close_range(ctypes.c_uint(first), ctypes.c_uint(last), 0))


def drop_privileges() -> None:
    """Give up every capability, now and through exec. The zygote does it once for its children."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        # EINVAL ends the list of capabilities; EPERM: we have none that could be passed on.
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    header = struct.pack("=II", _CAPABILITY_VERSION_3, 0)
    check("capset", libc.capset(header, bytes(24)))
