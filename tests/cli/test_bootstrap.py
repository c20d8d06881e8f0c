"""./pie sets up once, survives what can go wrong on the way, and then stays out of the way.

Each test runs it in a copy of the clone whose requirement is a tiny package, so that pip needs no
network and a set-up takes seconds.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # seconds for each set-up, more on a busy machine

ROOT = Path(__file__).parents[2]
SECONDS = 400.0  # for two set-ups, on a slow and busy machine
PROGRAM = "import sys, torch\nprint('ran', torch.VERSION, *sys.argv[1:])\n"


class Clone:
    """A clone with its own cache folder and its own package index."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self.cache = folder.parent / "cache"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder.parent),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
        }
        (folder / "pie_cli").mkdir(parents=True)
        (folder / "worker" / "requirements").mkdir(parents=True)
        shutil.copy(ROOT / "pie", folder)
        shutil.copy(ROOT / "pie_cli" / "bootstrap.py", folder / "pie_cli")
        (folder / "pie_cli" / "__init__.py").touch()
        (folder / "pie_cli" / "__main__.py").write_text(PROGRAM)
        self.require("torch==1.0+cpu")

    def require(self, *lines: str) -> None:
        text = "# what the program needs\n" + "\n".join(lines) + "\n"
        (self.folder / "worker" / "requirements" / "cpu.txt").write_text(text)

    def pie(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.folder / "pie"), *arguments], self.folder.parent, changes)

    def pie_from(self, folder: Path, program: Path) -> subprocess.CompletedProcess[str]:
        return self._run([str(program)], folder, {})

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.folder / "pie"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def venvs(self) -> list[Path]:
        return sorted(path for path in (self.cache / "pie").glob("venv-*") if path.is_dir())

    def _run(
        self, command: list[str], folder: Path, changes: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        environment = self.environment | changes
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def clone(tmp_path: Path, make_wheel: Callable[..., Path]) -> Iterator[Clone]:
    wheels = make_wheel("torch", "1.0+cpu", {"torch.py": b"VERSION = '1.0+cpu'\n"})
    yield Clone(tmp_path / "a clone", wheels)


def test_the_first_call_sets_up_and_the_second_just_runs(clone: Clone) -> None:
    first = clone.pie("run", "--x")
    assert (first.returncode, first.stdout) == (0, "ran 1.0+cpu run --x\n")
    assert f"pie: setting up in {clone.venvs()[0]} for cpu, once" in first.stderr
    assert "pie: ready after" in first.stderr
    # Without an index, and with a bootstrap that would fail: neither is needed any more.
    second = clone.pie("again", PIP_FIND_LINKS="/nonexistent")
    assert (second.returncode, second.stdout, second.stderr) == (0, "ran 1.0+cpu again\n", "")


def test_other_modules_of_the_same_name_are_not_taken(clone: Clone, tmp_path: Path) -> None:
    clone.pie()
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("pie_cli", "torch", "json"):
        (hostile / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    (tmp_path / "link").symlink_to(clone.folder / "pie")
    clone.environment["PYTHONPATH"] = str(hostile)
    assert clone.pie_from(hostile, tmp_path / "link").stdout == "ran 1.0+cpu\n"


def test_without_a_cpu_build_the_plain_one_is_taken_with_its_libraries(
    clone: Clone, tmp_path: Path, make_wheel: Callable[..., Path]
) -> None:
    wheels = tmp_path / "wheels"
    shutil.rmtree(wheels)
    requires = ("triton", "listed", "libcuda>=1", "extra-thing; extra == 'more'")
    code = b"import libcuda, listed\nVERSION = '1.0'\n"
    make_wheel("torch", "1.0", {"torch.py": code}, requires)
    make_wheel("libcuda", "1.5", {"libcuda.py": b""}, requires=("listed>=2",))
    make_wheel("listed", "2.0", {"listed.py": b""})
    make_wheel("listed", "3.0", {"listed.py": b""})
    clone.require("torch==1.0+cpu", "listed==2.0  # pinned")
    done = clone.pie()
    assert done.stdout == "ran 1.0\n", done.stderr
    assert "pie: no index has torch's CPU build: taking the plain one, 3.0 GB more" in done.stderr
    packages = clone.venvs()[0] / "lib"
    assert [path.name for path in packages.rglob("listed-*.dist-info")] == ["listed-2.0.dist-info"]


def test_a_package_that_cannot_be_had_fails_with_its_name_and_is_tried_anew(
    clone: Clone, make_wheel: Callable[..., Path]
) -> None:
    clone.require("torch==1.0+cpu", "late==1.0")
    failed = clone.pie()
    assert (failed.returncode, failed.stdout) == (3, "")
    assert "error: installing failed: No matching distribution found for late==1.0" in failed.stderr
    assert "hint: all of pip's words are in" in failed.stderr
    make_wheel("late", "1.0", {"late.py": b""})
    assert clone.pie().stdout == "ran 1.0+cpu\n"


def test_a_set_up_that_was_killed_is_made_anew(clone: Clone) -> None:
    clone.pie()
    venv = clone.venvs()[0]
    for marker in (".pie-ready", ".pie-ours"):  # also when it was killed before it wrote a word
        (venv / marker).unlink()
    (venv / "half-written").touch()
    assert clone.pie().stdout == "ran 1.0+cpu\n"
    assert not (venv / "half-written").exists()


def test_ctrl_c_ends_the_set_up_and_the_next_call_completes_it(clone: Clone) -> None:
    process = clone.start()
    while not clone.venvs():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert clone.pie().stdout == "ran 1.0+cpu\n"


def test_two_calls_at_once_set_up_once(clone: Clone) -> None:
    said = [process.communicate(timeout=SECONDS) for process in [clone.start(), clone.start()]]
    assert [output for output, _ in said] == ["ran 1.0+cpu\n"] * 2
    errors = "".join(error for _, error in said)
    assert errors.count("pie: setting up in") == 1
    assert errors.count("pie: waiting for another set-up") <= 1


def test_changed_requirements_make_another_environment(
    clone: Clone, make_wheel: Callable[..., Path]
) -> None:
    clone.pie()
    make_wheel("torch", "2.0+cpu", {"torch.py": b"VERSION = '2.0+cpu'\n"})
    clone.require("torch==2.0+cpu")
    assert clone.pie().stdout == "ran 2.0+cpu\n"
    assert len(clone.venvs()) == 2
    clone.require("torch==1.0+cpu")
    assert clone.pie().stderr == ""


def test_pie_venv_names_another_place_which_is_never_emptied(clone: Clone, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "letter.txt").write_text("dear")
    refused = clone.pie(PIE_VENV=str(place))
    assert refused.returncode == 3
    assert "is not empty, and no virtual environment" in refused.stderr
    assert [path.name for path in place.iterdir()] == ["letter.txt"]
    (place / "letter.txt").unlink()
    assert clone.pie(PIE_VENV=str(place)).stdout == "ran 1.0+cpu\n"
    assert clone.venvs() == []


def test_an_unknown_accelerator_is_refused(clone: Clone) -> None:
    refused = clone.pie(PIE_ACCELERATOR="abacus")
    assert refused.returncode == 3
    assert "hint: set it to `cpu` or `cuda`, or unset it" in refused.stderr


def test_an_old_python_is_told(clone: Clone, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "cksum", "dirname", "readlink", "sh"):
        (tools / name).symlink_to(shutil.which(name) or "")
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    refused = clone.pie(PATH=str(tools))
    assert refused.returncode == 3
    assert "pie needs Python 3.11 or newer" in refused.stderr


def test_completion_before_the_set_up_sets_up_nothing(clone: Clone) -> None:
    done = clone.pie("__complete", "1", "pie", "")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert clone.pie("version").returncode == 0
