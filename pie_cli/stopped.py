"""Parts of an engine that are stopped, by SIGSTOP or a debugger: seen from outside. Wakes none."""

from pathlib import Path

_STOPPED = (b"T", b"t")


def state(pid: int) -> bytes:
    """The kernel's letter; none when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b""


def is_stopped(pid: int) -> bool:
    return state(pid) in _STOPPED


def stopped_parts(hub: int) -> dict[int, str]:
    """Process and name of those parts that are stopped, the hub first."""
    parts = {hub: "hub"} | {pid: _name(pid) for pid in _children(hub)}
    return {pid: name for pid, name in parts.items() if is_stopped(pid)}


def told(parts: dict[int, str]) -> tuple[str, str]:
    """What is the matter, and what to do about it."""
    names = [f"its {name} (process {pid})" for pid, name in parts.items()]
    verb = "is" if len(names) == 1 else "are"
    pids = " ".join(map(str, parts))
    return (
        f"{' and '.join(names)} {verb} stopped",
        f"`kill -CONT {pids}` lets it go on; `pie stop` ends the engine",
    )


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        is_zygote = b"--control" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "part"
    return "zygote" if is_zygote else "worker"
