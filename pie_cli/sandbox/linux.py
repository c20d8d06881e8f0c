"""Enforces the policy on Linux: namespaces, Landlock, seccomp, limits, capabilities.

A `Confinement` is made once, before any fork, since building needs files, helpers such as
`ldconfig`, and time. `prepare_parent()` follows, and cannot be undone. `plan()` is made before each
fork, and `enter()` follows it in the child: it only makes system calls.
Refuses to go on after a failure: the caller ends the process.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable
from typing import TypeVar

import landlockpy
import seccompy

from pie_cli.sandbox import calls, namespaces, policy

Result = TypeVar("Result")

_PRCTL, _DUP3, _CLOSE, _CLOSE_RANGE, _PRLIMIT, _SIGNALS, _SECCOMP, _LANDLOCK = map(
    seccompy.syscall_nr,
    "prctl dup3 close close_range prlimit64 rt_sigprocmask seccomp landlock_restrict_self".split(),
)
_SET_FILTER = 1  # SECCOMP_SET_MODE_FILTER
_TO_WRITE = os.O_WRONLY | os.O_CLOEXEC
_OOM_SCORE = str(policy.OOM_SCORE).encode()


class SetupFailed(Exception):
    """A step of the confinement failed; the message names the step and the reason."""


class Confinement:
    """What every child of this process enters. Holds a Landlock ruleset and a BPF program."""

    def __init__(self, tier: str, readable: list[str]) -> None:
        if tier not in policy.TIERS:
            raise ValueError(f"unknown sandbox tier `{tier}`: use one of {policy.TIERS}")
        self.tier = tier
        self.readable = readable
        self.parent = os.getpid()  # as the children will see it
        self._ruleset: landlockpy.Ruleset | None = None
        self._program: _Program | None = None
        # Children are named by the machine's numbers here, whatever their own namespace is.
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if tier == policy.NONE:
            return
        self._ruleset = build_ruleset(readable)
        self._program = _Program(build_filter().program)

    def prepare_parent(self) -> int | None:
        """What this process does once for all its children: enter namespaces, lose capabilities.

        Returns the pid of the namespaces' first process; when that ends, all children do.
        Raises SetupFailed.
        """
        first = None
        if self.tier == policy.FULL:
            first = _step("namespaces", lambda: namespaces.enter(self.readable))
            self.parent = 0  # we are outside their pid namespace
        if self.tier != policy.NONE:
            _step("capabilities", calls.drop_privileges)
        return first

    def plan(self, bounds: policy.Bounds, keep: set[int], failures: int) -> tuple[calls.Step, ...]:
        """What `enter` does in the child that is forked next. Keeps the descriptors 0, 1, 2, `keep`
        and `failures`."""
        no_signals = ctypes.c_uint64(0)
        mask = ctypes.addressof(no_signals)
        steps = [
            calls.step("signals", _SIGNALS, signal.SIG_SETMASK, mask, 0, 8, held=no_signals),
            calls.step("parent", _PRCTL, calls.PR_SET_PDEATHSIG, signal.SIGKILL),
            calls.step("dumps", _PRCTL, calls.PR_SET_DUMPABLE, 0),
            calls.step("privileges", _PRCTL, calls.PR_SET_NO_NEW_PRIVS, 1),
            calls.step("stdio", _DUP3, 1, 2, 0),  # 0 and 1 are /dev/null already
        ]
        ruleset = self._ruleset.fileno() if self._ruleset else failures
        for first, last in calls.ranges_but(keep | {ruleset, failures}):
            steps.append(calls.step("descriptors", _CLOSE_RANGE, first, last, 0))
        for name, number, soft, hard in policy.resource_limits(bounds):
            pair = (ctypes.c_uint64 * 2)(soft, hard)
            where = ctypes.addressof(pair)
            steps.append(calls.step(f"limit {name}", _PRLIMIT, 0, number, where, 0, held=pair))
        if self._ruleset:
            steps.append(calls.step("Landlock", _LANDLOCK, ruleset, 0))
            steps.append(calls.step("ruleset", _CLOSE, ruleset))
        if self._program:
            steps.append(calls.step("seccomp", _SECCOMP, _SET_FILTER, 0, self._program.address))
        return tuple(steps)

    def enter(self, plan: tuple[calls.Step, ...], failures: int) -> None:
        """Confine this process for good.

        `failures` is closed when all is done, so that later code cannot write to it.
        Raises SetupFailed; `failures` is then still open.
        """
        self.offer_to_oom_killer()
        try:
            calls.take(plan)
        except OSError as error:
            raise SetupFailed(error.strerror) from error
        if os.getppid() != self.parent:  # it ended before it was to take us along
            raise SetupFailed("parent: it has ended")
        os.close(failures)

    def offer_to_oom_killer(self) -> None:
        """Short of memory, the kernel shall end an inferlet: never worker, hub or zygote for it.

        A courtesy, not a boundary: some containers do not let us.
        """
        try:
            score = os.open("self/oom_score_adj", _TO_WRITE, dir_fd=self._proc)
            os.write(score, _OOM_SCORE)
            os.close(score)
        except OSError:  # no context manager: one more thing to touch
            pass


class _Program:
    """A BPF program where the kernel can read it: a `struct sock_fprog`."""

    def __init__(self, program: bytes) -> None:
        self._program = ctypes.create_string_buffer(program, len(program))
        length, where = len(program) // 8, ctypes.addressof(self._program)
        self._header = ctypes.create_string_buffer(struct.pack("@HP", length, where))
        self.address = ctypes.addressof(self._header)


def _step(name: str, action: Callable[[], Result]) -> Result:
    try:
        return action()
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
