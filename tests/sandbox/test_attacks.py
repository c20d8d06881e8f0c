"""Each attack succeeds in the open and fails in the sandbox."""

import platform

import pytest
import seccompy

from pie_cli.engine.launcher import Limits
from pie_cli.sandbox import policy
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.conftest import Arena, in_the_open

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the attacks know x86-64's system call numbers"
)

# Impossible in the open as well; what matters is that the sandbox's own means do not help.
NEVER_POSSIBLE = {"send_from_stream_pair_to_path"}


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - NEVER_POSSIBLE))
def test_attack_succeeds_in_the_open_and_fails_confined(name, confined: Arena, targets):
    blocked = confined.outcome(name, targets)
    assert blocked.outcome == "blocked", blocked
    in_open = in_the_open(name, targets)
    if in_open != "escaped" and ATTACKS[name].optional:
        pytest.skip(f"nobody can do it on this machine: {in_open}")
    assert in_open == "escaped"


@pytest.mark.parametrize("name", sorted(NEVER_POSSIBLE))
def test_attack_fails_confined(name, confined: Arena, targets):
    blocked = confined.outcome(name, targets)
    assert blocked.outcome == "blocked", blocked


def test_no_other_system_call_passes(confined: Arena):
    # uretprobe and uprobe: entered from probes, the kernel exempts them from filters.
    skip = [335, 336]
    named = policy.ALLOWED_CALLS | policy.CONDITIONAL_CALLS.keys()
    skip += [seccompy.syscall_nr(name) for name in named]
    swept = confined.outcome("sweep", {"skip": skip})
    assert swept.outcome == "escaped", swept  # it reported, so it survived
    assert swept.result == {}


def test_every_name_in_the_policy_is_a_system_call():
    for name in policy.ALLOWED_CALLS | policy.CONDITIONAL_CALLS.keys():
        assert seccompy.syscall_nr(name) >= 0


def test_calling_through_the_32_bit_entry_kills(confined: Arena):
    assert in_the_open("int_0x80", {}) == "escaped"
    assert confined.outcome("int_0x80").exit.status == -31  # SIGSYS


def test_the_x32_interface_is_refused(confined: Arena):
    result = confined.outcome("x32_getpid").result
    assert "PermissionError" in result or "Function not implemented" in result


def test_a_loop_that_ignores_the_warning_is_killed_at_its_cpu_limit(confined: Arena):
    ended = confined.outcome("use_all_cpu", limits=Limits(cpu=1))
    assert ended.exit.status == -9
    assert 1.5 < ended.exit.cpu < 3


def test_a_child_holds_only_its_socket_and_the_null_device(confined: Arena):
    assert confined.outcome("open_descriptors").result == ["device"] * 3 + ["socket"]


def test_a_child_sees_nothing_of_the_users_environment(confined: Arena):
    seen = confined.outcome("environment").result
    assert {"HOME", "PATH", "USER", "PYTHONPATH"}.isdisjoint(seen)
    assert seen["TOKENIZERS_PARALLELISM"] == "false"  # its default starts threads
