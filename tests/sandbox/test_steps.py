"""The calls that a child makes on itself: in order, and none behind one that failed."""

import errno
import os

import pytest
import seccompy

from pie_cli.sandbox import calls, linux, policy

BOUNDS = policy.Bounds(address_space=1 << 30, cpu=5, descriptors=64)


def close(descriptor: int) -> calls.Step:
    return calls.step(f"close {descriptor}", seccompy.syscall_nr("close"), descriptor)


def test_nothing_is_done_behind_a_step_that_fails():
    first, second = os.pipe()
    with pytest.raises(OSError, match="close 1000000: Bad file descriptor") as failed:
        calls.take([close(first), close(1000000), close(second)])
    assert failed.value.errno == errno.EBADF
    with pytest.raises(OSError):
        os.fstat(first)
    os.fstat(second)
    os.close(second)


@pytest.mark.parametrize("tier", policy.TIERS)
def test_every_step_that_fails_ends_the_confinement(tier, monkeypatch):
    """Each call in turn is replaced by one that fails."""
    monkeypatch.setattr(linux.Confinement, "offer_to_oom_killer", lambda self: None)
    confinement = linux.Confinement(tier, policy.readable_paths([]))
    reader, writer = os.pipe()
    plan = confinement.plan(BOUNDS, {writer}, writer)
    names = [step.name for step in plan]
    assert len(names) > 15 and ("seccomp" in names) == (tier != policy.NONE)
    for failing, step in enumerate(plan):
        # All before it are harmless ones: this process goes on.
        steps = [calls.step("sync", seccompy.syscall_nr("getpid"))] * failing
        broken = calls.step(step.name, seccompy.syscall_nr("close"), 1000000)
        steps += [broken, *plan[failing + 1 :]]
        with pytest.raises(linux.SetupFailed, match=f"{step.name}: Bad file descriptor"):
            confinement.enter(tuple(steps), writer)
        os.fstat(writer)
    os.close(reader)
    os.close(writer)


def test_what_is_kept_lies_between_the_ranges_that_are_closed():
    assert calls.ranges_but({0, 3, 7}) == [(4, 6), (8, 0xFFFFFFFF)]
    assert calls.ranges_but(set()) == [(3, 0xFFFFFFFF)]
    assert calls.ranges_but({4, 5}) == [(3, 3), (6, 0xFFFFFFFF)]


def test_a_fork_runs_no_hooks_of_pythons():
    ran = []
    os.register_at_fork(after_in_child=lambda: ran.append(1))
    reader, writer = os.pipe()
    pid = calls.fork()
    if pid == 0:
        os.write(writer, b"%d %d" % (os.getpid(), len(ran)))
        os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert os.read(reader, 64) == b"%d 0" % pid
    os.close(reader)
    os.close(writer)
