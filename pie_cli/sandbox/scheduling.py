"""How soon the kernel lets this process run once it has something to do. Sets it; decides nothing.

A process that asks for short slices runs at once when it wakes, instead of when what runs has had
its slice; its share of the processors stays the same. Kernels before 6.12 do not know the request.
"""

import contextlib
import os
import platform
import struct

from pie_cli.sandbox import calls

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, runtime, deadline, period, and two bounds of utilisation
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
_RESET_ON_FORK = 1


def ask_for_slices(nanoseconds: int, *, inherited: bool) -> None:
    """For this thread, and what it starts if `inherited`. A courtesy: refused, nothing changes."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    flags = 0 if inherited else _RESET_ON_FORK
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    values = _ATTRIBUTES.size, os.SCHED_OTHER, flags, nice, 0, nanoseconds, 0, 0, 0, 0
    with contextlib.suppress(OSError):
        calls.syscall("sched_setattr", number, 0, _ATTRIBUTES.pack(*values), 0)
