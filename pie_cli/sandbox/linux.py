"""Enforces the policy on Linux: namespaces, Landlock, seccomp, limits, capabilities.

A `Confinement` is made once, before any fork, since building needs files, helpers such as
`ldconfig`, and time. `prepare_parent()` follows, and cannot be undone. `enter()` runs in each
child and only makes system calls.
Refuses to go on after a failure: the caller ends the process.
"""

import contextlib
import errno
import os
import resource
from collections.abc import Callable
from typing import TypeVar

import landlockpy
import seccompy

from pie_cli.sandbox import calls, namespaces, policy

Result = TypeVar("Result")


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
        self._filter: seccompy.Filter | None = None
        # Children are named by the machine's numbers here, whatever their own namespace is.
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if tier == policy.NONE:
            return
        self._ruleset = build_ruleset(readable)
        self._filter = build_filter()

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

    def enter(self, bounds: policy.Bounds, keep: set[int], failures: int) -> None:
        """Confine this process for good. Keeps the descriptors 0, 1, 2 and `keep`.

        `failures` is closed when all is done, so that later code cannot write to it.
        Raises SetupFailed; `failures` is then still open.
        """
        _step("signals", calls.reset_signals)
        self._offer_to_oom_killer()
        _step("parent", lambda: calls.die_with(self.parent))
        ruleset = {self._ruleset.fileno()} if self._ruleset else set()
        _step("stdio", lambda: os.dup2(1, 2))  # 0 and 1 are /dev/null already
        _step("descriptors", lambda: calls.close_all_but(keep | ruleset | {failures}))
        for name, number, soft, hard in policy.resource_limits(bounds):
            _step(f"limit {name}", lambda: resource.setrlimit(number, (soft, hard)))  # noqa: B023
        if self._ruleset:
            _step("Landlock", self._ruleset.restrict)
            self._ruleset.close()
        if self._filter:
            _step("seccomp", self._filter.load)
        os.close(failures)

    def _offer_to_oom_killer(self) -> None:
        """Short of memory, the kernel shall end an inferlet: never worker, hub or zygote for it.

        A courtesy, not a boundary: some containers do not let us.
        """
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CLOEXEC
            score = os.open("self/oom_score_adj", flags, dir_fd=self._proc)
            os.write(score, str(policy.OOM_SCORE).encode())
            os.close(score)


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
