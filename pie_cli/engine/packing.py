"""Puts side by side what every child of the zygote writes to, so that it writes to few pages.

A page that a child writes to is copied, and using a Python object writes to it: its reference
count. Here code that children run is gathered in one place, and the holes that loading has left
between objects are filled, so that the new objects of a child lie side by side too.
Changes what no program can see but by `id()`. Needs a process of one thread.
"""

import contextlib
import ctypes
import gc
import marshal
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType

_GRANULE = 16  # bytes: sizes of small objects are multiples of it
_SMALL = 512  # bytes; larger objects are libc's
_LARGE = 8192
_ROOM = 8 << 20  # bytes of one size that are tried; the holes of all sizes have 4 MB

_MADV_COLLAPSE = 25  # Linux 6.1
_LARGE_PAGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_allocate_object = ctypes.pythonapi.PyObject_Malloc
_allocate_memory = _libc["malloc"]
for _function in (_allocate_object, _allocate_memory):
    _function.argtypes, _function.restype = [ctypes.c_size_t], ctypes.c_void_p


def gather(life: Callable[[], object], others: Iterable[FunctionType] = ()) -> int:
    """Moves the code of all functions that `life` calls, and of `others`; returns how many.

    `life` runs in a process of its own, since watching it leaves marks in the code.
    """
    wanted = _code_run_by(life) | {id(function.__code__) for function in others}
    gc.collect()
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    functions = [each for each in functions if id(each.__code__) in wanted]
    old = {id(each.__code__): each.__code__ for each in functions}
    fill_holes()
    # With all its constants, names and tables.
    new = dict(zip(old, marshal.loads(marshal.dumps(tuple(old.values()))), strict=True))
    for each in functions:
        each.__code__ = new[id(each.__code__)]
    return len(new)


def fill_holes() -> None:
    """Takes the free memory between objects, for good."""
    for size in range(_GRANULE, _SMALL + 1, _GRANULE):
        if not _fill(_allocate_object, size, size):
            break
    for size in range(_LARGE, _GRANULE, -_GRANULE):
        if not _fill(_allocate_memory, size - 8, size):  # glibc has 8 bytes of its own in it
            break


def _fill(allocate: Callable[[int], int], size: int, distance: int) -> bool:
    """Until what is allocated lies side by side: then it comes out of new memory.

    False: it never does, so this is an allocator of another kind.
    """
    last, length, wanted = 0, 0, max(3, 1024 // size)
    for _ in range(_ROOM // size):
        address = allocate(size)
        length = length + 1 if address - last == distance else 0
        if length == wanted:
            return True
        last = address
    return False


def use_large_pages() -> None:
    """Has the kernel put this process's own memory into large pages, where it can: a fork copies
    an entry for each page. A large page that a child writes to is cut up for it alone.
    """
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = int(_LARGE_PAGE.read_text())
    for start, end in _own_memory() if size else ():
        for address in range(-(-start // size) * size, end - size + 1, size):
            _libc.madvise(address, size, _MADV_COLLAPSE)  # refused where nothing is


def _own_memory() -> list[tuple[int, int]]:
    """Ranges of addresses that are writable and no file's."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    own = [x[0] for x in lines if x[1] == "rw-p" and (len(x) < 6 or x[5].strip() == "[heap]")]
    return [tuple(int(address, 16) for address in each.split("-")) for each in own]


def _code_run_by(life: Callable[[], object]) -> set[int]:
    """The `id`s of the code of all functions that `life` calls."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            seen = set()
            sys.setprofile(lambda frame, *_: seen.add(frame.f_code))
            life()
            sys.setprofile(None)
            with open(writer, "w") as file:
                file.write(" ".join(str(id(code)) for code in seen))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        found = file.read()
    os.waitpid(pid, 0)
    return set(map(int, found.split()))
