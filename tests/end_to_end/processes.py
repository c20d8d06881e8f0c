"""Finds the processes of a test's engine in /proc, so that a test can end one of them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], object], seconds: float = 240) -> object:
    """The first true value of `condition`; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {condition}")


def _parents() -> dict[int, int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    return parents


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _has_home(pid: int, home: Path) -> bool:
    try:
        return f"PIE_HOME={home}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def hub(home: Path) -> int | None:
    """Pid of the engine that serves this home."""
    for pid in _parents():
        if "pie_cli.engine.daemon" in _command(pid) and _has_home(pid, home):
            return pid
    return None


def descendants(pid: int) -> set[int]:
    """All living processes below `pid`."""
    parents, found = _parents(), {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def worker(home: Path) -> int:
    return next(p for p in descendants(hub(home)) if "-m worker" in _command(p))


def zygote(home: Path) -> int:
    return next(p for p in children(hub(home)) if "zygote" in _command(p))


def children(pid: int) -> set[int]:
    return {child for child, parent in _parents().items() if parent == pid}


def inferlet(home: Path, inner: int) -> int:
    """The pid of an inferlet whose own namespace numbers it `inner`; others may be spare ones."""
    return next(pid for pid in children(zygote(home)) if _inner_number(pid) == inner)


def _inner_number(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])
    except (OSError, IndexError):  # it has ended
        return None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
