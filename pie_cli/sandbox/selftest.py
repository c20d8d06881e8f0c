"""The probe: which tier this machine gives, found by confining a process and attacking from it.

Versions prove nothing (a container may block what the kernel has), so the answer is what a
confined child could and could not do. Runs in a process of its own: forking is unsafe in the
caller, which may have threads.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pie_cli.sandbox import policy

if TYPE_CHECKING:
    from pie_cli.sandbox import linux

_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pie_cli.sandbox import selftest; "
    "selftest.main()"
)
_TIMEOUT = 30.0  # seconds; the probe takes 0.1

FULL_HINT = (
    "`full` needs user namespaces: in a container, a profile that allows unshare() and mount(); "
    "on Ubuntu, `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)
_HINTS = {
    "Landlock": "Landlock needs Linux 5.13 or later with `landlock` among the kernel's `lsm=`, "
    "and a container profile that allows it",
    "seccomp": "seccomp needs a kernel with CONFIG_SECCOMP_FILTER, and a container profile that "
    "allows seccomp()",
    "Linux": "the sandbox is made of Linux facilities: run it in a Linux machine or container",
}


@dataclass(frozen=True)
class Tier:
    """What the probe found."""

    name: str  # one of policy.TIERS
    facilities: dict[str, int]  # facility -> its version, 0 where it is missing
    description: str  # for people: `full (namespaces, landlock 7, seccomp)`
    missing: list[str]  # what a better tier would need


class SandboxUnavailable(Exception):
    """The machine cannot confine inferlets as asked."""

    def __init__(self, missing: list[str], hint: str = "") -> None:
        super().__init__(f"inferlets cannot be sandboxed here: {'; '.join(missing)}")
        advice = [_HINTS[name] for name in missing_facilities(missing)]
        advice.append("`--unsafe-no-sandbox` runs inferlets that you trust without a sandbox")
        self.hint = hint or "; ".join(advice)


def missing_facilities(missing: list[str]) -> list[str]:
    return [name for name in _HINTS if f"{name} is missing" in missing]


def choose(unsafe_no_sandbox: bool = False, only_full: bool = False) -> Tier:
    """The tier to run with. Raises SandboxUnavailable instead of running with less than asked."""
    if unsafe_no_sandbox:
        return Tier(policy.NONE, {}, "none (--unsafe-no-sandbox)", [])
    tier = probe()
    if tier.name == policy.NONE:
        raise SandboxUnavailable(tier.missing)
    if only_full and tier.name != policy.FULL:
        reason = f"`--sandbox full` is not to be had, only `{tier.name}`"
        hint = f"{FULL_HINT}; `--sandbox auto` takes the best that there is"
        raise SandboxUnavailable([reason, *tier.missing], hint)
    return tier


def probe() -> Tier:
    """Really start a confined child and see. About 0.1 s."""
    if sys.platform != "linux":
        return judge({"missing": ["Linux is missing"]})
    try:
        done = subprocess.run(probe_command(), capture_output=True, timeout=_TIMEOUT, env={})
        return judge(json.loads(done.stdout))
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        return judge({"missing": [f"the probe failed: {last[0]}"]})
    except subprocess.TimeoutExpired:
        return judge({"missing": [f"the probe did not end within {_TIMEOUT:.0f} s"]})


def probe_command() -> list[str]:
    return [sys.executable, "-I", "-c", _BOOT, _ROOT]


def judge(findings: dict) -> Tier:
    """The tier that findings (see `main`) amount to. Half of a sandbox is none: seccomp without
    Landlock leaves every file readable, Landlock without seccomp leaves the kernel open."""
    names = ("landlock", "seccomp", "namespaces")
    facilities = {name: findings.get(name, 0) for name in names}
    missing, missing_for_full = findings["missing"], findings.get("missing_for_full", [])
    base = f"landlock {facilities['landlock']}, seccomp"
    if missing:
        return Tier(policy.NONE, facilities, f"none ({'; '.join(missing)})", missing)
    if missing_for_full:
        description = f"reduced ({base}; not full: {'; '.join(missing_for_full)})"
        return Tier(policy.REDUCED, facilities, description, missing_for_full)
    return Tier(policy.FULL, facilities, f"full (namespaces, {base})", [])


# ---------------------------------------------------------------------------------------------
# In the probe's own process


def main() -> None:
    """Print the findings as JSON: versions, and what is missing or did not hold in each tier."""
    landlock, seccomp = _versions()
    missing = [] if landlock else ["Landlock is missing"]
    missing += [] if seccomp else ["seccomp is missing"]
    missing_for_full: list[str] = []
    if not missing:
        missing = _attack_from_confinement(policy.REDUCED)
    if not missing:
        missing_for_full = _attack_from_confinement(policy.FULL)
    findings = {"landlock": landlock, "seccomp": seccomp, "namespaces": int(not missing_for_full)}
    findings |= {"missing": missing, "missing_for_full": missing_for_full}
    print(json.dumps(findings))


def _versions() -> tuple[int, int]:
    """Landlock's version and seccomp's, 0 where it is missing."""
    import landlockpy
    import seccompy

    landlock = seccomp = 0
    with contextlib.suppress(OSError):
        landlock = landlockpy.abi_version()
    with contextlib.suppress(OSError):
        seccomp = int(seccompy.action_supported(seccompy.Action.ERRNO))
    return landlock, seccomp


def _attack_from_confinement(tier: str) -> list[str]:
    """What a confined child could do, or why it could not be confined."""
    with tempfile.NamedTemporaryFile(delete=True) as secret:
        os.chmod(secret.name, 0o644)
        trials = _trials(secret.name)
        if tier == policy.FULL:
            trials |= _trials_for_full(secret.name)
        # What fails in the open proves nothing when it fails in the sandbox.
        telling = {name: trial for name, trial in trials.items() if _succeeds(trial)}
        if len(telling) < len(trials) - 1:  # a machine without /etc/passwd is conceivable
            return [f"the probe could try only {', '.join(telling) or 'nothing'}"]
        return _in_child(lambda _: _run_confined(tier, telling))


def _trials(secret: str) -> dict[str, Callable[[], object]]:
    return {
        "read /etc/passwd": lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)),
        "read a file of the host": lambda: os.close(os.open(secret, os.O_RDONLY)),
        "write a file of the host": lambda: os.close(os.open(secret, os.O_WRONLY)),
        "list /": lambda: os.listdir("/"),
        "open a socket": lambda: socket.socket().close(),
        "fork": _fork,
    }


def _trials_for_full(secret: str) -> dict[str, Callable[[], object]]:
    from pie_cli.sandbox import namespaces

    return {
        "see that a file exists": lambda: os.stat(secret),
        "see a process outside": lambda: _fail_unless(os.getppid() != 0),
        "see the host's name": lambda: _fail_unless(os.uname().nodename != namespaces.HOST_NAME),
    }


def _fail_unless(seen: bool) -> None:
    if not seen:
        raise OSError("not to be seen")


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _succeeds(trial: Callable[[], object]) -> bool:
    try:
        trial()
    except OSError:
        return False
    return True


def _run_confined(tier: str, trials: dict[str, Callable[[], object]]) -> list[str]:
    """Be a zygote: what its only child could do. Leaves this process unfit for anything else."""
    from pie_cli.sandbox import linux

    try:
        confinement = linux.Confinement(tier, policy.readable_paths([]))
        confinement.prepare_parent()
    except linux.SetupFailed as error:
        return [str(error)]
    return _in_child(lambda writer: _try_confined(confinement, trials, writer))


def _try_confined(
    confinement: "linux.Confinement", trials: dict[str, Callable[[], object]], writer: int
) -> list[str]:
    from pie_cli.sandbox import linux

    bounds = policy.Bounds(address_space=16 << 30, cpu=5, descriptors=64)
    _, failures = os.pipe()
    try:
        confinement.enter(confinement.plan(bounds, {writer}, failures), failures)
    except linux.SetupFailed as error:
        return [f"the confinement failed: {error}"]
    return [
        f"a confined process could {name}" for name, trial in trials.items() if _succeeds(trial)
    ]


def _in_child(action: Callable[[int], list[str]]) -> list[str]:
    """What `action` returns in a child of its own. It gets the descriptor that must stay open."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(action(writer)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    verdict = b"".join(iter(lambda: os.read(reader, 4096), b""))
    os.close(reader)
    os.waitpid(pid, 0)
    return json.loads(verdict) if verdict else ["the confined process died"]
