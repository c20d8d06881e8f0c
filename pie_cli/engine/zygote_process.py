"""The zygote as the launcher's child: its command line, its environment, its size.

Does not speak with it: `launcher.py` does.
"""

import asyncio
import contextlib
import os
import resource
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])

# `-I`: no PYTHON* variables, no user site, no current folder on the import path.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pie_cli.engine import zygote; "
    "zygote.main(sys.argv[2:], sys.argv[1])"
)


async def spawn(
    arguments: list[str], log_path: str | None, descriptor: int
) -> asyncio.subprocess.Process:
    """A fresh Python that runs `zygote.main`; it inherits `descriptor` and appends to the log."""
    with contextlib.ExitStack() as stack:
        log = asyncio.subprocess.DEVNULL
        if log_path:
            log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            stack.callback(os.close, log)
        return await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-c", _BOOT, _ROOT],
            *arguments,
            env=clean_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
            pass_fds=(descriptor,),
            start_new_session=True,  # a Ctrl-C in the terminal is for the engine alone
        )


def clean_environment() -> dict[str, str]:
    """What the zygote sees. Children can read it: nothing of the user's environment."""
    environment = {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        # Children have no threads, so libraries must not try to start any.
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    libraries = os.environ.get("LD_LIBRARY_PATH")  # some Python builds cannot start without it
    return environment | ({"LD_LIBRARY_PATH": libraries} if libraries else {})


def sizes(pid: int) -> tuple[int, int]:
    """Bytes that a process has mapped, and those that are resident."""
    mapped, resident = Path(f"/proc/{pid}/statm").read_text().split()[:2]
    return int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize()


def raise_descriptor_limit() -> None:
    """Two descriptors per process: the usual soft limit of 1,024 is too low for many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
