"""A real engine for the whole session: real model, real processes, an own PIE_HOME."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "tests/inferlet/programs"  # of the contract, shared with the faster tiers
Pie = Callable[..., subprocess.CompletedProcess]


def environment(home: Path) -> dict[str, str]:
    """The test's environment with an own home, and no set-up of the user's own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PIE_", "XDG_RUNTIME"))}
    return env | {
        "PIE_HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1",
        "PIE_KEEP_ALIVE": "600",
    }  # fmt: skip


def run_pie(home: Path, *args: str, stdin: str | None = None, timeout: float = 800):
    """`pie ARGS`, with stdout and stderr captured. No stdin unless given."""
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        [sys.executable, "-m", "pie_cli", *map(str, args)], env=environment(home), cwd=ROOT,
        capture_output=True, text=True, timeout=timeout, **source,
    )  # fmt: skip


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, model_path: str) -> Iterator[Path]:
    """A PIE_HOME whose store points to the test model; its engine is stopped at the end."""
    home = tmp_path_factory.mktemp("pie")
    added = run_pie(home, "models", "add", model_path, "--name", "smollm2")
    assert added.returncode == 0, added.stderr
    assert run_pie(home, "models", "default", "smollm2").returncode == 0
    yield home
    run_pie(home, "stop")


@pytest.fixture
def pie(home: Path) -> Pie:
    """`pie(*args, stdin=None)` against the session's engine."""

    def call(*args: str, **options) -> subprocess.CompletedProcess:
        return run_pie(home, *args, **options)

    return call


@pytest.fixture
def result(pie: Pie) -> Callable[..., object]:
    """The return value of an app: `result(path, input)`; fails with stderr unless it exits 0."""

    def call(app: str | Path, value: dict | None = None, **options) -> object:
        done = pie("run", str(app), "--input", json.dumps(value or {}), **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


@pytest.fixture
def app(tmp_path: Path) -> Callable[[str], str]:
    """Writes a one-off inferlet and gives its path."""

    def write(source: str, name: str = "app.py") -> str:
        path = tmp_path / name
        path.write_text(source)
        return str(path)

    return write
