"""Where things are. What people set is in `config.py`.

    $PIE_HOME/models/  the store        $PIE_HOME/logs/  one log for each engine start
    $PIE_HOME/files/   what apps sent    $PIE_HOME/config.toml  settings
    RUN/MODEL/         the engine of that model (0700): hub.sock, worker.sock, engine.json, locks

RUN is $XDG_RUNTIME_DIR/pie/HASH or $PIE_HOME/run, whichever socket paths fit into; else a folder
below the temporary one.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from pie_cli.usage import UsageError

ROOT = Path(__file__).resolve().parent.parent  # the folder of all packages
KEPT_LOGS = 20  # for each model
_MAX_SOCKET_PATH = 107  # bytes, of the kernel's sockaddr_un
_LONGEST_SOCKET = "worker.sock"


@dataclass(frozen=True)
class EngineFolder:
    """The files of one model's engine."""

    path: Path

    @property
    def hub_address(self) -> str:
        return f"ipc://{self.path / 'hub.sock'}"

    @property
    def worker_address(self) -> str:
        return f"ipc://{self.path / _LONGEST_SOCKET}"

    @property
    def files(self) -> list[Path]:
        """All of them."""
        sockets = [self.path / "hub.sock", self.path / _LONGEST_SOCKET]
        return [self.card, self.lock, self.start_lock, *sockets]

    @property
    def card(self) -> Path:
        """Who serves here; exists while clients may connect."""
        return self.path / "engine.json"

    @property
    def lock(self) -> Path:
        """Held by the engine for its life."""
        return self.path / "lock"

    @property
    def start_lock(self) -> Path:
        """Held by a client while it starts the engine."""
        return self.path / "start.lock"


def home() -> Path:
    """PIE_HOME, or ~/.pie."""
    path = os.environ.get("PIE_HOME") or "~/.pie"
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UsageError("the value of `PIE_HOME` is not UTF-8") from None
    return Path(os.path.abspath(Path(path).expanduser()))


def worker_module() -> str:
    """What is run as the worker; tests name a fake one."""
    return os.environ.get("PIE_WORKER") or "worker"


def chosen_model() -> str | None:
    """The store's default by its own file, without starting the store; None: ask the store."""
    try:
        name = (home() / "models" / ".default").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return name if name and is_stored(name) else None


def is_stored(model: str) -> bool:
    """Whether the store has a model of exactly that name."""
    return "/" not in model and not model.startswith(".") and (home() / "models" / model).is_dir()


def run_folder() -> Path:
    """The folder that holds the engines' folders."""
    import hashlib
    import tempfile

    digest = hashlib.sha256(os.fsencode(home())).hexdigest()[:12]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    wanted = [Path(runtime) / "pie" / digest] if runtime and os.path.isdir(runtime) else []
    for folder in [*wanted, home() / "run"]:
        if len(os.fsencode(folder)) + _LONGEST_MODEL + len(_LONGEST_SOCKET) + 2 <= _MAX_SOCKET_PATH:
            return folder
    return Path(tempfile.gettempdir()) / f"pie-{os.getuid()}-{digest}"


_LONGEST_MODEL = 28  # bytes of an engine folder's name


def engine_folder(model: str) -> EngineFolder:
    """The engine folder of a model, whether or not it exists."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", model).lstrip(".")
    if name != model or len(name) > _LONGEST_MODEL:
        import hashlib

        digest = hashlib.sha256(model.encode()).hexdigest()[:10]
        name = f"{name[: _LONGEST_MODEL - len(digest) - 1]}-{digest}"
    return EngineFolder(run_folder() / name)


def make_private(folder: Path) -> None:
    """Create the folder for this user alone; refuse one that others could have prepared."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise UsageError(
            f"`{folder}` does not belong to you", "remove it, or set `PIE_HOME` to another folder"
        )
    if facts.st_mode & 0o077:
        folder.chmod(0o700)


def engine_folders() -> list[EngineFolder]:
    """Every engine folder that exists."""
    try:
        return [EngineFolder(path) for path in sorted(run_folder().iterdir()) if path.is_dir()]
    except OSError:
        return []


def program_environment() -> dict[str, str]:
    """What pie's other programs are started with, so that they find pie itself anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def new_log(model: str) -> Path:
    """A path for a new engine's log; the oldest logs of the model are removed."""
    import time

    folder = home() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"engine-{re.sub(r'[^A-Za-z0-9._-]', '-', model)}-"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for old in sorted(folder.glob(f"{prefix}*.log"))[: -KEPT_LOGS + 1]:
        old.unlink(missing_ok=True)
    return folder / f"{prefix}{stamp}-{os.getpid()}.log"
