"""Each attack succeeds in the open and fails in the sandbox, in each tier."""

import platform

import pytest
import seccompy

from pie_cli.engine.launcher import Limits
from pie_cli.sandbox import policy
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.conftest import Arena, Open

# Impossible in the open as well; what matters is that the sandbox's own means do not help.
NEVER_POSSIBLE = {"send_from_stream_pair_to_path"}

only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 machine code")


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_attack_succeeds_in_the_open_and_fails_confined(
    name, each_tier: Arena, in_the_open: Open, targets
):
    confined = each_tier.outcome(name, targets)
    expected = "escaped" if each_tier.tier in ATTACKS[name].open_in else "blocked"
    assert confined.outcome == expected, confined
    open_outcome = in_the_open.outcome(name, targets)
    if name in NEVER_POSSIBLE:
        return
    if open_outcome != "escaped" and ATTACKS[name].optional:
        pytest.skip(f"nobody can do it on this machine: {open_outcome}")
    assert open_outcome == "escaped"


def test_the_full_tier_is_open_to_no_attack():
    assert not [name for name, attack in ATTACKS.items() if policy.FULL in attack.open_in]


def test_no_other_system_call_passes(each_tier: Arena):
    # uretprobe and uprobe: entered from probes, the kernel exempts them from filters.
    skip = [335, 336]
    named = policy.ALLOWED_CALLS | policy.CONDITIONAL_CALLS.keys()
    skip += [seccompy.syscall_nr(name) for name in named]
    swept = each_tier.outcome("sweep", {"skip": skip})
    assert swept.outcome == "escaped", swept  # it reported, so it survived
    assert swept.result == {}


def test_every_name_in_the_policy_is_a_system_call():
    for name in policy.ALLOWED_CALLS | policy.CONDITIONAL_CALLS.keys():
        assert seccompy.syscall_nr(name) >= 0


@only_x86
def test_calling_through_the_32_bit_entry_kills(each_tier: Arena, in_the_open: Open):
    assert in_the_open.outcome("int_0x80", {}) == "escaped"
    assert each_tier.outcome("int_0x80").exit.status == -31  # SIGSYS


@only_x86
def test_the_x32_interface_is_refused(each_tier: Arena):
    result = each_tier.outcome("x32_getpid").result
    assert "PermissionError" in result or "Function not implemented" in result


def test_a_loop_that_ignores_the_warning_is_killed_at_its_cpu_limit(confined: Arena):
    ended = confined.outcome("use_all_cpu", limits=Limits(cpu=1))
    assert ended.exit.status == -9
    assert 1.5 < ended.exit.cpu < 3


def test_a_child_holds_only_its_socket_and_the_null_device(each_tier: Arena):
    assert each_tier.outcome("open_descriptors").result == ["device"] * 3 + ["socket"]


def test_a_child_sees_nothing_of_the_users_environment(each_tier: Arena):
    seen = each_tier.outcome("environment").result
    assert {"HOME", "PATH", "USER", "PYTHONPATH"}.isdisjoint(seen)
    assert seen["TOKENIZERS_PARALLELISM"] == "false"  # its default starts threads


def test_a_child_sees_nothing_but_the_runtime(confined: Arena):
    if confined.tier != policy.FULL:
        pytest.skip("`reduced` shares the machine's mounts")
    seen = confined.outcome(
        "existing", {"paths": ["/proc", "/dev", "/etc", "/tmp", "/sys", "/bin"]}
    )
    assert seen.result == []
