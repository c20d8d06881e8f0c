"""Not attacks: what a confined child looks like from inside, and how it can end."""

import ctypes
import errno
import mmap
import os
import signal
import threading
import time

from tests.sandbox.registry import call, libc

READ_WRITE_EXECUTE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC


def use_all_cpu() -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def int_0x80() -> int:
    """getpid through the 32-bit entry of an x86-64 kernel."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=READ_WRITE_EXECUTE)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def x32_getpid() -> int:
    return call(0x40000000 | 39)


def sweep(skip: list[int]) -> dict[int, str]:
    """Every system call number that is not refused, but those in `skip`."""
    passed = {}
    for number in sorted(set(range(512)) - set(skip)):
        ctypes.set_errno(0)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
        if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            passed[number] = errno.errorcode.get(ctypes.get_errno(), "success")
    return passed


def open_descriptors() -> list[str]:
    """What each open descriptor is, by type."""
    kinds = {0o140000: "socket", 0o010000: "fifo", 0o020000: "device", 0o100000: "file"}
    found = []
    for number in range(64):
        try:
            found.append(kinds.get(os.fstat(number).st_mode & 0o170000, "other"))
        except OSError:
            pass
    return found


def environment() -> dict[str, str]:
    return dict(os.environ)


def existing(paths: list[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def standing() -> dict[str, int]:
    """The numbers of this process and its parent, as it sees them."""
    return {"pid": os.getpid(), "parent": os.getppid()}


def main_thread() -> dict[str, object]:
    """What Python knows of the only thread, and what the kernel does."""
    thread = threading.main_thread()
    return {
        "number": thread.native_id, "own": threading.get_native_id(),
        "is_current": thread is threading.current_thread(), "alive": threading.active_count(),
    }  # fmt: skip


def signals() -> dict[str, list[int]]:
    """What is blocked, ignored and handled, of those that can be."""
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
    found = {number: signal.getsignal(number) for number in numbers}
    return {
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "ignored": [number for number in numbers if found[number] == signal.SIG_IGN],
        "handled": [number for number in numbers if callable(found[number])],
        "wakes": [signal.set_wakeup_fd(-1)],
    }


def exit_with(code: int) -> None:
    os._exit(code)


def fail() -> None:
    raise LookupError("not caught by anybody")


def sleep() -> None:
    time.sleep(600)


def draw_numbers() -> list[float]:
    import random

    import numpy

    return [random.random(), float(numpy.random.random())]
