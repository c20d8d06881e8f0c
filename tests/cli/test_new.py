"""`pie new`: the app runs, its test passes, and nothing is overwritten."""

import os
import subprocess
import sys

import pytest

from pie_cli.__main__ import command
from tests.cli.conftest import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_starter_passes_its_own_test(folder, capsys):
    assert command(["new", "my_app"]) == 0
    said = capsys.readouterr()
    assert said.out == "my_app.py\ntest_my_app.py\n"
    assert "pie run my_app.py" in said.err
    assert "pie python -m pytest test_my_app.py" in said.err
    done = subprocess.run(
        [sys.executable, "-m", "pie_cli", "python", "-m", "pytest", "-q", "test_my_app.py"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_starter_has_no_fault(folder, capsys):
    command(["new", "apps/my_app.py"])
    assert command(["check", "apps/my_app.py"]) == 0
    assert "no fault" in capsys.readouterr().out
    assert command(["run", "apps/my_app.py", "--about"]) == 0
    assert capsys.readouterr().out.startswith("Completes a text, and sends it piece by piece.")


@pytest.mark.parametrize("present", ["my_app.py", "test_my_app.py"])
def test_nothing_is_overwritten(folder, capsys, present):
    (folder / present).write_text("mine")
    assert command(["new", "my_app"]) == 2
    assert f"`{present}` exists already" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [present]
    assert (folder / present).read_text() == "mine"


@pytest.mark.parametrize("name", ["my-app", "1st", "", "json", "inferlet", "a b", "é", "class", "None", "__main__", "ipc", "msgspec"])
def test_a_name_that_cannot_be_imported_is_refused(folder, capsys, name):
    assert command(["new", "--", name]) == 2
    assert "hint: " in capsys.readouterr().err
    assert not list(folder.iterdir())
