"""What the kernel says of a process's slices of the processors."""

import ctypes
import struct

import seccompy

from pie_cli.sandbox.calls import libc


def slice_of(pid: int) -> int:
    """Nanoseconds; 0 where the kernel does not know of slices (before Linux 6.12)."""
    answer = ctypes.create_string_buffer(56)
    number = ctypes.c_long(seccompy.syscall_nr("sched_getattr"))
    assert libc.syscall(number, pid, answer, len(answer), 0) == 0
    return struct.unpack("=IIQiIQQQII", answer.raw)[5]
