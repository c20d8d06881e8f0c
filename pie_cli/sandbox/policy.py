"""What an inferlet process may do, as data. Enforces nothing: `linux.py` does."""

import errno
import os
import resource
import site
import sysconfig
from dataclasses import dataclass
from pathlib import Path

# Tiers, strongest first. `full`: namespaces besides all that follows. `reduced`: Landlock, seccomp,
# limits, no capabilities. `none`: limits only.
FULL = "full"
REDUCED = "reduced"
NONE = "none"
TIERS = (FULL, REDUCED, NONE)

# ---------------------------------------------------------------------------------------------
# System calls. Everything that is not named here fails with EPERM.

ALLOWED_CALLS = frozenset(
    """
    read write readv writev pread64 lseek close close_range fstat newfstatat stat lstat statx
    fstatfs openat open getdents64 readlink readlinkat access faccessat faccessat2 getcwd
    mmap munmap mprotect mremap brk
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack rt_sigpending rt_sigtimedwait
    restart_syscall pause getitimer setitimer alarm
    sched_yield nanosleep gettimeofday time times
    getrandom getpid getppid gettid getuid geteuid getgid getegid getgroups getresuid getresgid
    getpgrp uname getcpu getrlimit getrusage
    epoll_create1 epoll_create epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    poll ppoll select pselect6 eventfd2 pipe pipe2 dup dup2 dup3
    shutdown getsockopt getsockname getpeername recvfrom recvmsg sendmsg
    exit exit_group set_robust_list rseq
    """.split()
)

# libc tries these first and falls back to an older call when they do not exist.
ABSENT_CALLS = frozenset("clone3 openat2 futex_waitv statmount listmount".split())

WHOLE = 0xFFFFFFFFFFFFFFFF
LOW_32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Match:
    """One condition on a system call's argument: `value of argument & mask == equals`."""

    argument: int
    equals: int
    mask: int = WHOLE


def _any_of(argument: int, values: tuple[int, ...], mask: int = WHOLE) -> list[tuple[Match, ...]]:
    return [(Match(argument, value, mask),) for value in values]


# call -> alternatives; each alternative is a conjunction of conditions.
CONDITIONAL_CALLS: dict[str, list[tuple[Match, ...]]] = {
    # asyncio wakes itself through a stream pair. A datagram pair would be a way out: `sendto`
    # with a path reaches any other datagram socket without socket() or connect().
    "socketpair": [(Match(0, 1), Match(1, 1, 0xF))],
    "sendto": [(Match(4, 0),)],  # no destination address
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
    "fcntl": _any_of(1, (0, 1, 2, 3, 4, 1030)),
    # FIONBIO, FIONCLEX, FIOCLEX, FIONREAD, TCGETS. Not TIOCSTI: it types into a terminal.
    "ioctl": _any_of(1, (0x5421, 0x5450, 0x5451, 0x541B, 0x5401), LOW_32),
    "prlimit64": [(Match(0, 0), Match(2, 0))],  # read our own limits
    "sched_getaffinity": [(Match(0, 0),)],  # our own: another pid tells whether it exists
    # Fixed clocks only: a negative id reads another process's CPU clock.
    "clock_gettime": [(Match(0, 0, LOW_32 & ~0xF),)],
    "clock_getres": [(Match(0, 0, LOW_32 & ~0xF),)],
    "clock_nanosleep": [(Match(0, 0, LOW_32 & ~0xF),)],
    # NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, DONTDUMP.
    # Not MERGEABLE: merged pages tell what other processes hold.
    "madvise": _any_of(2, (0, 1, 2, 3, 4, 8, 14, 15, 16)),
    # WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET; no priority inheritance.
    "futex": _any_of(1, (0, 1, 3, 4, 5, 9, 10), 0x7F),
}

DEFAULT_ERRNO = errno.EPERM

# ---------------------------------------------------------------------------------------------
# Files: what may be read. Nothing may be written, made, removed or executed.

_ZONES = "/usr/share/zoneinfo"


def readable_paths(packages: list[str]) -> list[str]:
    """Directories and files that inferlets may read: the Python runtime and `packages` (folders
    of importable packages). Never a home directory as a whole, never a model or a store.

    Each by all names that the interpreter and the loader use, with symbolic links and without.
    """
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    paths |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths |= {*site.getsitepackages(), *packages, *_library_folders(), *mapped_libraries(), _ZONES}
    names = {os.path.abspath(path) for path in paths if path}
    names |= {os.path.realpath(name) for name in names}
    return sorted(n for n in names if os.path.exists(n) and not _is_too_wide(os.path.realpath(n)))


def _library_folders() -> list[str]:
    """Where the loader looks for the shared libraries of extension modules."""
    triple = sysconfig.get_config_var("MULTIARCH") or ""
    folders = [f"/lib/{triple}", f"/usr/lib/{triple}"] if triple else []
    return [*folders, "/lib64", "/usr/lib64"]


def mapped_libraries() -> set[str]:
    """Shared libraries this process runs on, wherever they are: as files, not as folders."""
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[5] if line.count("/") else ""
        if ".so" in os.path.basename(path):
            found.add(path)
    return found


def _is_too_wide(path: str) -> bool:
    """Whether a rule on `path` would open the root, a top folder such as /usr, or a home."""
    home = os.path.realpath(os.path.expanduser("~"))
    return path == "/" or os.path.commonpath([path, home]) == path or path in _TOP_FOLDERS


_TOP_FOLDERS = frozenset(f"/{name}" for name in "bin etc home lib opt proc sys tmp usr var".split())

# ---------------------------------------------------------------------------------------------
# Limits

NICENESS = 5  # of zygote and inferlets: the worker's threads come first
# Nanoseconds that each may compute at a time where others wait. The kernel's own are 1.4 ms and more:
# with short ones a process that wakes runs at once, beside those that compute without end.
SLICE, HUB_SLICE = 500_000, 100_000
OOM_SCORE = 500  # of inferlets, of 1,000: as if each used half of the machine's memory already


@dataclass(frozen=True)
class Bounds:
    """Limits of one process. `address_space` counts the zygote's own size too."""

    address_space: int  # bytes
    cpu: int  # seconds
    descriptors: int


def resource_limits(bounds: Bounds) -> list[tuple[str, int, int, int]]:
    """(name, resource, soft, hard) for every limit of a process."""

    def row(name: str, soft: int, hard: int | None = None) -> tuple[str, int, int, int]:
        return name, getattr(resource, f"RLIMIT_{name}"), soft, soft if hard is None else hard

    return [
        row("AS", bounds.address_space),
        row("DATA", bounds.address_space),
        # SIGXCPU first, which a program may catch; one second later SIGKILL, which it may not.
        row("CPU", bounds.cpu, bounds.cpu + 1),
        row("NOFILE", bounds.descriptors),
        row("FSIZE", 0),
        row("CORE", 0),
        row("MEMLOCK", 0),
        row("MSGQUEUE", 0),
        row("NPROC", 0),  # not enforced for root: seccomp denies clone() in any case
        row("SIGPENDING", 64),
        row("STACK", 8 << 20),
    ]
