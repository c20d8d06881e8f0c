"""The probe says what this machine can do, and refuses when that is not enough."""

import json
import subprocess
import sys

import pytest

from pie_cli.sandbox import policy, selftest
from tests.sandbox.conftest import TIMEOUT

WITHOUT = """
import errno, os, sys, seccompy
table = seccompy.Filter()
table.errno(sys.argv[1], errno.EPERM if sys.argv[1] == "seccomp" else errno.ENOSYS)
table.load()
os.execv(sys.argv[2], sys.argv[2:])
"""


def probe_without(call: str) -> selftest.Tier:
    """The probe on a machine where a system call does not exist."""
    command = [sys.executable, "-c", WITHOUT, call, *selftest.probe_command()]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    return selftest.judge(json.loads(done.stdout))


def test_this_machine_gives_the_full_tier():
    tier = selftest.probe()
    if tier.name == policy.REDUCED and "leave the namespaces" in tier.missing[0]:
        pytest.skip(f"no user namespaces here: {tier.missing}")
    assert tier.name == policy.FULL, tier
    assert tier.description.startswith("full (namespaces, landlock ")
    assert tier.facilities["landlock"] >= 1
    assert not tier.missing


@pytest.mark.parametrize("call", ["unshare", "pivot_root", "open_tree"])
def test_without_namespaces_the_tier_is_reduced_and_says_why(call):
    tier = probe_without(call)
    assert tier.name == policy.REDUCED
    assert f"{call}" in tier.description
    assert tier.missing[0].startswith("namespaces: could not ")


def test_insisting_on_full_refuses_less_and_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(selftest, "probe", lambda: probe_without("unshare"))
    assert selftest.choose().name == policy.REDUCED
    with pytest.raises(selftest.SandboxUnavailable, match="`--sandbox full`.*unshare") as refusal:
        selftest.choose(only_full=True)
    assert "`--sandbox auto`" in refusal.value.hint


def test_without_landlock_there_is_no_tier():
    tier = probe_without("landlock_create_ruleset")
    assert (tier.name, tier.missing) == (policy.NONE, ["Landlock is missing"])
    assert (tier.facilities["landlock"], tier.facilities["seccomp"]) == (0, 1)


def test_without_seccomp_there_is_no_tier():
    tier = probe_without("seccomp")
    assert (tier.name, tier.missing) == (policy.NONE, ["seccomp is missing"])


def test_a_confinement_that_cannot_be_entered_is_no_tier():
    tier = probe_without("landlock_restrict_self")
    assert tier.name == policy.NONE
    assert "the confinement failed: Landlock" in tier.missing[0]


@pytest.mark.parametrize(
    "leak, words",
    [("open_filter", "open a socket"), ("wide_ruleset", "read /etc/passwd")],
)
def test_a_confinement_that_leaks_is_no_tier(leak, words):
    tier = selftest.judge(json.loads(run_leaking(leak)))
    assert tier.name == policy.NONE
    assert any(words in missing for missing in tier.missing)


def test_namespaces_that_leak_are_not_full():
    tier = selftest.judge(json.loads(run_leaking("whole_tree")))
    assert tier.name == policy.REDUCED
    assert "a confined process could see that a file exists" in tier.missing


LEAKS = {
    "whole_tree": "namespaces.topmost = lambda paths: ['/']",
    "open_filter": "linux.build_filter = lambda: seccompy.Filter()",
    "wide_ruleset": "policy.readable_paths = lambda packages: ['/']",
}


def run_leaking(leak: str) -> bytes:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import seccompy; "
        f"from pie_cli.sandbox import linux, namespaces, policy, selftest; {LEAKS[leak]}; selftest.main()"
    )
    command = [sys.executable, "-I", "-c", script, selftest.probe_command()[-1]]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True).stdout


def test_refusal_names_what_is_missing_and_the_way_out(monkeypatch):
    findings = {"landlock": 0, "seccomp": 1, "missing": ["Landlock is missing"]}
    monkeypatch.setattr(selftest, "probe", lambda: selftest.judge(findings))
    with pytest.raises(selftest.SandboxUnavailable, match="Landlock is missing") as refusal:
        selftest.choose()
    assert "`--unsafe-no-sandbox`" in refusal.value.hint
    assert "Linux 5.13" in refusal.value.hint


def test_without_a_sandbox_only_when_asked():
    assert selftest.choose(unsafe_no_sandbox=True).name == policy.NONE
