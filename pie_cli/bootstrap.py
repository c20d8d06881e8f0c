"""Sets up the environment that pie runs in, once: `python3 -I pie_cli/bootstrap.py`.

Owns the virtual environments under the user's cache folder. Runs on the user's bare Python, so it
imports the standard library alone. Everything it says goes to stderr; stdout is the path of the
environment's Python. Exit codes: 0; 3 when the set-up failed; 130 when it was interrupted.

    CACHE/pie/venv-cpu-3.11-0123456789/             named by accelerator, Python, requirement files
    CACHE/pie/venv-cpu-3.11-0123456789/.pie-ready   written last: what was installed
    CACHE/pie/venv-cpu-3.11-0123456789/.pie-ours    the folder was made here, and may be made anew
    CACHE/pie/ready/KEY                             read by `./pie`, so that it need not come here
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "worker" / "requirements"
TEST_REQUIREMENTS = ROOT / "tests" / "requirements.txt"
STAMP, OURS = ".pie-ready", ".pie-ours"

SIZES = {"cpu": ("0.9 GB", 2.6), "cuda": ("5 GB", 11.0)}
PLAIN_TORCH_GB = 3.0

# The plain build of torch requires this for compiling kernels on a GPU: 1 GB, never used on a CPU.
UNUSED = {"triton"}


# pip's words for it: without and with a constraint on the package in the user's settings.
NO_SUCH_VERSION = "No matching distribution|ResolutionImpossible"


class SetupError(Exception):
    """The set-up cannot go on: what is wrong, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main() -> int:
    """Makes the environment if it is not there; the result is the exit code."""
    options = _parser().parse_args()
    try:
        environment = Environment(choose_accelerator())
        environment.ensure()
        if options.tests:
            environment.ensure_tests()
        if options.ready:
            _write(options.ready, f"{environment.folder}\n{environment.stamp}\n")
        print(environment.python)
        return 0
    except SetupError as error:
        print(f"error: {error}\n\nhint: {error.hint}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"error: the set-up failed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        say("interrupted; the next call sets up again, from what is downloaded already")
        return 130


class Environment:
    """One virtual environment, and what it must hold."""

    def __init__(self, accelerator: str) -> None:
        self.accelerator = accelerator
        self.requirements = REQUIREMENTS / f"{accelerator}.txt"
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        digest = hashlib.sha256(self.requirements.read_bytes()).hexdigest()[:10]
        self.stamp = f"{accelerator}-{version}-{digest}"
        named = os.environ.get("PIE_VENV")
        self.cache = cache_folder()
        self.is_cached = not named
        self.folder = Path(named or self.cache / f"venv-{self.stamp}").expanduser().absolute()
        self.python = self.folder / "bin" / "python"
        self.without_torch = self.folder / ".requirements.txt"

    def is_ready(self) -> bool:
        """Whether everything was installed, and its Python still exists."""
        return _read(self.folder / STAMP).strip() == self.stamp and self.python.exists()

    def ensure(self) -> None:
        """Sets up, unless that was done; two at once do it once."""
        if self.is_ready():
            return
        with self._lock():
            if self.is_ready():
                return  # by another process, meanwhile
            started = time.monotonic()
            self._announce()
            self._create()
            if self.accelerator == "cpu":
                self._install_cpu()
            else:
                self._install("-r", str(self.requirements))
            _write(self.folder / STAMP, self.stamp + "\n")
            say(f"ready after {time.monotonic() - started:.0f} s; this was needed once")

    def ensure_tests(self) -> None:
        """Adds what the tests need."""
        digest = hashlib.sha256(TEST_REQUIREMENTS.read_bytes()).hexdigest()[:10]
        stamp = self.folder / ".pie-tests"
        if _read(stamp).strip() == digest:
            return
        with self._lock():
            self._install("--no-deps", "-r", str(TEST_REQUIREMENTS))
            _write(stamp, digest + "\n")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.cache.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        with (self.cache / f"{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another set-up of the same environment")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _announce(self) -> None:
        download, disk = SIZES[self.accelerator]
        say(f"setting up in {self.folder} for {self.accelerator}, once, in 2 to 8 minutes")
        say(f"downloads about {download} where pip has it not yet, and takes {disk} GB of disk")
        self._check_room(disk)

    def _check_room(self, gigabytes: float) -> None:
        existing = next(path for path in [self.folder, *self.folder.parents] if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < gigabytes:
            raise SetupError(
                f"the set-up needs {gigabytes} GB at {self.folder}, and {free:.1f} GB are free",
                "free some space, or name a folder elsewhere with PIE_VENV",
            )

    def _create(self) -> None:
        """A fresh environment. One that was left half-way is made anew, since pip takes a package
        that was half written for installed; the downloads are in pip's cache."""
        if self.folder.exists() and (self.is_cached or (self.folder / OURS).exists()):
            shutil.rmtree(self.folder)
        if self.python.exists():
            return  # the user's own, named by PIE_VENV: pip adds to it
        if any(not path.name.startswith(OURS) for path in self.folder.glob("*")):
            raise SetupError(
                f"{self.folder} is not empty, and no virtual environment",
                "let PIE_VENV name an environment, or a folder that does not exist yet",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / OURS, "")
        _make_venv(self.folder)

    def _install_cpu(self) -> None:
        torch, others = _split_torch(self.requirements)
        _write(self.without_torch, "\n".join(others) + "\n")
        # pip first, so that the environment can do without the one of the user's Python.
        if pip := [line for line in others if line.startswith("pip==")]:
            self._install("--no-deps", *pip)
        try:
            self._install("--no-deps", torch)
        except NoSuchVersion:
            self._install_plain_torch(torch.split("+")[0])
        self._install("--no-deps", "-r", str(self.without_torch))

    def _install_plain_torch(self, torch: str) -> None:
        """The build with CUDA in it, and its libraries: it works on a CPU, but is larger."""
        say(f"no index has torch's CPU build: taking the plain one, {PLAIN_TORCH_GB} GB more")
        say("(PIE_TORCH_INDEX names an extra index that has it)")
        self._check_room(SIZES["cpu"][1] + PLAIN_TORCH_GB)
        self._install("--no-deps", torch)
        self._install(*self._torch_libraries(), "-c", str(self.without_torch))

    def _torch_libraries(self) -> list[str]:
        """What the installed torch requires beyond our own list."""
        code = "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))"
        command = [self.python, "-I", "-c", code]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        pinned = {_name(line) for line in _split_torch(self.requirements)[1]} | UNUSED
        lines = found.stdout.splitlines()
        return [line for line in lines if "extra ==" not in line and _name(line) not in pinned]

    def _install(self, *arguments: str) -> None:
        command = [*self._pip(), "install", "--no-input", "--disable-pip-version-check"]
        command += ["--prefer-binary", "--progress-bar", "off"]
        if index := os.environ.get("PIE_TORCH_INDEX"):
            command += ["--extra-index-url", index]
        run_pip([*command, *arguments], self.folder.with_suffix(self.folder.suffix + ".log"))


    def _pip(self) -> list[str]:
        """The environment's own pip, or the one that came with Python until there is one."""
        if any(self.folder.glob("lib/python*/site-packages/pip")):
            return [str(self.python), "-I", "-m", "pip"]
        return [sys.executable, "-P", "-m", "pip", "--python", str(self.python)]


class NoSuchVersion(SetupError):
    """No index has the version that was asked for."""


def run_pip(command: list[str], log: Path) -> None:
    """Runs pip, shows its steps, and keeps all its words in `log`."""
    # These would send the packages to another place than the environment.
    hostile = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_NO_DEPS")
    environment = {name: value for name, value in os.environ.items() if name not in hostile}
    steps = Steps()
    with (
        log.open("a") as file,
        subprocess.Popen(
            command, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        errors = []
        for line in process.stdout:
            file.write(line)
            steps.see(line)
            if line.startswith("ERROR: "):
                errors.append(line.removeprefix("ERROR: ").strip())
    steps.end()
    if process.returncode != 0:
        reason = errors[-1] if errors else f"pip ended with {process.returncode}"
        kind = NoSuchVersion if re.search(NO_SUCH_VERSION, reason) else SetupError
        raise kind(f"installing failed: {reason}", f"all of pip's words are in {log}")


class Steps:
    """Says what pip is doing: one line that changes on a terminal, a few lines elsewhere."""

    QUIET_SECONDS = 15  # between two lines where nothing animates

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._animated = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._packages = 0
        self._last = 0.0

    def see(self, line: str) -> None:
        """Takes in one line of pip's output."""
        if match := re.match(r"\s*(?:Downloading|Using cached) (\S+?)-\d\S* \((.+)\)", line):
            self._show(f"got {match[1]} ({match[2]})", important=match[2].endswith("GB"))
        elif match := re.match(r"Collecting (\S+)", line):
            self._packages += 1
            self._show(f"fetching package {self._packages}: {match[1]}")
        elif line.startswith("Installing collected packages:") and "," in line:
            self._show(f"writing {line.count(',') + 1} packages to disk", important=True)

    def end(self) -> None:
        """Clears the line that changes."""
        if self._animated:
            print("\r\033[K", end="", file=self._stream, flush=True)

    def _show(self, text: str, important: bool = False) -> None:
        if self._animated:
            width = shutil.get_terminal_size().columns - 6
            print(f"\r\033[Kpie: {text[:width]}", end="", file=self._stream, flush=True)
        elif important or time.monotonic() - self._last > self.QUIET_SECONDS:
            self._last = time.monotonic()
            print(f"pie: {text}", file=self._stream, flush=True)


def choose_accelerator() -> str:
    """`cuda` where an NVIDIA driver answers, else `cpu`; PIE_ACCELERATOR overrides."""
    named = os.environ.get("PIE_ACCELERATOR")
    if named in SIZES:
        return named
    if named:
        raise SetupError(f"PIE_ACCELERATOR is `{named}`", "set it to `cpu` or `cuda`, or unset it")
    try:
        command = ["nvidia-smi", "-L"]
        answer = subprocess.run(command, check=False, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "cuda" if answer.returncode == 0 and b"GPU" in answer.stdout else "cpu"


def cache_folder() -> Path:
    """Where environments lie, shared by all clones of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pie"


def say(text: str) -> None:
    """One line for the person who waits."""
    print(f"pie: {text}", file=sys.stderr, flush=True)


def _split_torch(requirements: Path) -> tuple[str, list[str]]:
    """The line for torch, and all other lines that name a package."""
    lines = [line.split("#")[0].strip() for line in requirements.read_text().splitlines()]
    torch = next(line for line in lines if line.startswith("torch=="))
    return torch, [line for line in lines if line and line != torch]


def _name(requirement: str) -> str:
    return re.split(r"[\s=<>!~;\[(]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _make_venv(folder: Path) -> None:
    command = [sys.executable, "-m", "venv", str(folder)]
    if _has_pip():
        # Its own pip comes with the requirements. Debian's Python cannot give it one at all.
        command.append("--without-pip")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise SetupError(
            f"making a virtual environment failed:\n{said}",
            "on Debian and Ubuntu: `apt-get install python3-venv`",
        )


def _has_pip() -> bool:
    """Whether the Python that runs this has pip, perhaps the user's own."""
    command = [sys.executable, "-P", "-m", "pip", "--version"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ready", type=Path, help="file that tells `./pie` where to go")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    return parser


if __name__ == "__main__":
    sys.exit(main())
