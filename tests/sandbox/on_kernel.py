"""Attacks on the kernel: calls that inferlets have no use for, and too much of the others.

Arguments are such that nothing happens when a call is executed: what counts is that it was.
"""

import ctypes
import mmap
import os
import resource
import socket

from tests.sandbox.registry import attack, buffer, raw, reaches_kernel

raw("io_uring_setup", 1, buffer)
raw("userfaultfd", 1)
raw("bpf", 0, 0, 0)
raw("perf_event_open", 0, 0, -1, -1, 0)
raw("keyctl", 0, 0, 0)
raw("add_key", 0, 0, 0, 0, 0)
raw("unshare", 0x10000000)  # CLONE_NEWUSER
raw("chroot", b"/")
raw("mount", 0, b"/nonexistent", 0, 0, 0)
raw("memfd_create", b"x", 0)
raw("memfd_secret", 0)
raw("shmget", 0x70696531, 4096, 0)  # one that is not there
raw("msgget", 0x70696531, 0)
raw("semget", 0x70696531, 0, 0)
raw("mq_open", b"attack", 0, 0, 0)
raw("personality", 0xFFFFFFFF)
raw("landlock_create_ruleset", 0, 0, 1)
raw("seccomp", 2, 0, buffer)
raw("ioctl", 0, 0x5412, b"x", title="type_into_terminal")  # TIOCSTI
raw("fcntl", 0, 8, 1, title="take_signals_of_a_descriptor")  # F_SETOWN
raw("fcntl", 0, 1031, 1 << 20, title="grow_a_pipe")  # F_SETPIPE_SZ
raw("futex", buffer, 6, 0, 0, 0, 0, title="futex_with_priority_inheritance")


@attack()
def merge_pages_with_others() -> str:
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return reaches_kernel("madvise", address, mmap.PAGESIZE, 12)


raw("setns", -1, 0)
raw("umount2", b"/nonexistent", 0)
raw("pivot_root", b"/nonexistent", b"/nonexistent")
raw("mount_setattr", -1, b"", 0, 0, 0)
raw("open_tree", -100, b"/nonexistent", 0)
raw("move_mount", -1, b"", -1, b"", 0)
raw("fsopen", b"tmpfs", 0)
raw("swapon", b"/nonexistent", 0)
raw("acct", b"/nonexistent")
raw("sethostname", 0, -1)
raw("settimeofday", 1, 0)
raw("clock_settime", -1, 0)
raw("adjtimex", 0)
raw("syslog", 10, 0, 0)
raw("init_module", 0, 0, 0)
raw("finit_module", -1, 0, 0)
raw("delete_module", 0, 0)
raw("reboot", 0, 0, 0, 0)
raw("kexec_load", 0, 0, 0, -1)
raw("iopl", 0)
raw("ioperm", 0, 0, 0)
raw("modify_ldt", 0, buffer, 0)
raw("membarrier", 0, 0, 0)
raw("remap_file_pages", 0, 0, 0, 0, 0)
raw("mlock", 0, 0)
raw("sysinfo", buffer)
raw("landlock_restrict_self", -1, 0)


# ---------------------------------------------------------------------------------------------
# Resources. Confined runs get 64 MiB.


@attack(MemoryError)
def allocate_much_memory() -> None:
    bytearray(512 << 20)


@attack(OSError)
def map_much_shared_memory() -> None:
    mmap.mmap(-1, 512 << 20).close()


@attack(OSError)
def open_many_descriptors() -> None:
    pipes = [os.pipe() for _ in range(100)]
    for descriptor in (end for pipe in pipes for end in pipe):
        os.close(descriptor)


@attack(OSError, MemoryError)
def grow_the_heap_in_small_steps() -> None:
    held = []
    for _ in range(200):
        held.append(mmap.mmap(-1, 1 << 20))
    for each in held:
        each.close()


@attack()
def keep_much_in_a_memory_file() -> None:
    held = os.memfd_create("attack")
    os.ftruncate(held, 1 << 20)
    os.close(held)


@attack(OSError)
def keep_much_in_pipes() -> None:
    pipes = [os.pipe() for _ in range(200)]
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)


@attack(ValueError)
def raise_own_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@attack(OSError)
def keep_much_in_socket_pairs() -> None:
    pairs = [socket.socketpair() for _ in range(100)]
    for end in (end for pair in pairs for end in pair):
        end.close()
