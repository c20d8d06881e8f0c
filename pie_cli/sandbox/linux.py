"""Enforces the policy on Linux: Landlock, seccomp, limits, capabilities.

A `Confinement` is prepared once, before any fork, since building needs files, helpers such as
`ldconfig`, and time. `enter()` runs in each child and only makes system calls.
Refuses to go on after a failure: the caller ends the process.
"""

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Callable

import landlockpy
import seccompy

from pie_cli.sandbox import policy

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


class SetupFailed(Exception):
    """A step of the confinement failed; the message names the step and the reason."""


class Confinement:
    """What every child of this process enters. Holds a Landlock ruleset and a BPF program."""

    def __init__(self, tier: str, readable: list[str]) -> None:
        if tier not in policy.TIERS:
            raise ValueError(f"unknown sandbox tier `{tier}`: use one of {policy.TIERS}")
        self.tier = tier
        self._ruleset: landlockpy.Ruleset | None = None
        self._filter: seccompy.Filter | None = None
        if tier == policy.NONE:
            return
        self._ruleset = build_ruleset(readable)
        self._filter = build_filter()

    def enter(self, bounds: policy.Bounds, keep: set[int], failures: int, parent: int) -> None:
        """Confine this process for good. Keeps the descriptors 0, 1, 2 and `keep`.

        `failures` is closed when all is done, so that later code cannot write to it.
        Raises SetupFailed; `failures` is then still open.
        """
        _step("signals", reset_signals)
        _step("parent", lambda: die_with(parent))
        ruleset = {self._ruleset.fileno()} if self._ruleset else set()
        _step("stdio", lambda: os.dup2(1, 2))  # 0 and 1 are /dev/null already
        _step("descriptors", lambda: close_all_but(keep | ruleset | {failures}))
        for name, number, soft, hard in policy.resource_limits(bounds):
            _step(f"limit {name}", lambda: resource.setrlimit(number, (soft, hard)))  # noqa: B023
        if self._ruleset:
            _step("Landlock", self._ruleset.restrict)
            self._ruleset.close()
        if self._filter:
            _step("seccomp", self._filter.load)
        os.close(failures)


def _step(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:
        raise SetupFailed(f"{name}: {error}") from error


def build_ruleset(readable: list[str]) -> landlockpy.Ruleset:
    """Handle every right that this kernel knows; grant reading below `readable`."""
    scopes = landlockpy.Scope.ABSTRACT_UNIX_SOCKET | landlockpy.Scope.SIGNAL
    ruleset = landlockpy.Ruleset(scoped=scopes)
    for path in readable:
        access = landlockpy.AccessFS.READ_FILE
        if os.path.isdir(path):
            access |= landlockpy.AccessFS.READ_DIR
        ruleset.allow_path(path, access)
    return ruleset


def build_filter() -> seccompy.Filter:
    """The allow list as a compiled BPF program. Calls of a foreign architecture kill."""
    # Also resolves libc now: lazily, in a child, that would need to start a process.
    if not seccompy.action_supported(seccompy.Action.ERRNO):
        raise OSError("this kernel has no seccomp filters")
    table = seccompy.Filter(default=int(seccompy.Action.ERRNO) | policy.DEFAULT_ERRNO)
    for name in filter(_exists, sorted(policy.ALLOWED_CALLS)):
        table.allow(name)
    for name in filter(_exists, sorted(policy.CONDITIONAL_CALLS)):
        for alternative in policy.CONDITIONAL_CALLS[name]:
            table.allow(name, args=[_condition(match) for match in alternative])
    for name in filter(_exists, sorted(policy.ABSENT_CALLS)):
        table.errno(name, errno.ENOSYS)
    assert table.program
    return table


def _exists(name: str) -> bool:
    """Whether this architecture has the call: `stat`, for one, is missing on aarch64."""
    try:
        seccompy.syscall_nr(name)
    except ValueError:
        return False
    return True


def _condition(match: policy.Match) -> seccompy.ArgCmp:
    if match.mask == policy.WHOLE:
        return seccompy.ArgCmp(match.argument, seccompy.CmpOp.EQ, match.equals)
    masked = seccompy.CmpOp.MASKED_EQ
    return seccompy.ArgCmp(match.argument, masked, match.equals, mask=match.mask)


def reset_signals() -> None:
    """Default dispositions, except SIGINT: a Ctrl-C is for the engine to act on."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def die_with(parent: int) -> None:
    """Be killed when `parent` ends; forbid core dumps and tracing by others of our user."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_DUMPABLE, 0)
    if os.getppid() != parent:  # it ended before the first call
        raise OSError("the zygote has ended")


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor from 3 upwards that is not in `keep`."""
    low = 3
    for descriptor in sorted(number for number in keep if number >= low):
        if descriptor > low:
            _close_range(low, descriptor - 1)
        low = descriptor + 1
    _close_range(low, 0xFFFFFFFF)


def _close_range(first: int, last: int) -> None:
    if _libc.close_range(ctypes.c_uint(first), ctypes.c_uint(last), 0):
        _raise("close_range")


def drop_privileges() -> None:
    """Give up every capability, now and through exec. The zygote does it once for its children."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        # EINVAL ends the list of capabilities; EPERM: we have none that could be passed on.
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    header = struct.pack("=II", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)):
        _raise("capset")


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        _raise(f"prctl {option}")


def _raise(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
