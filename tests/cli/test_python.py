"""`pie python`: the user's own programs, with pie importable."""

import re
import shutil
import subprocess
import sys

import pytest

from pie_cli import completion_scripts
from pie_cli import python as verb
from tests.cli.conftest import ROOT

START = [sys.executable, "-m", "pie_cli", "python"]


@pytest.fixture
def pie_python(tmp_path, engine):
    environment = {**engine.environment, "PYTHONSAFEPATH": "1"}

    def start(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*START, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    return start


def test_the_client_of_the_readme_runs_as_it_stands(pie_python, engine, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(from pie_cli\.client.*?)```", text, re.DOTALL)
    (tmp_path / "inferlets").mkdir()
    app = "def main(input): return {'text': input['prompt'].upper()}"
    (tmp_path / "inferlets" / "completion.py").write_text(app)
    (tmp_path / "client.py").write_text(block)
    done = pie_python("client.py")
    assert (done.returncode, done.stdout) == (0, "THE CAPITAL OF FRANCE IS\n"), done.stderr


def test_modules_beside_a_program_and_options_of_python_are_its_own(pie_python, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7")
    (tmp_path / "own.py").write_text("import beside, inferlet, sys; print(beside.VALUE, sys.argv[1:])")
    assert pie_python("-W", "error", "own.py", "--help", "-x").stdout == "7 ['--help', '-x']\n"
    assert pie_python("-c", "raise SystemExit(5)").returncode == 5


def test_a_missing_pytest_comes_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setattr(verb, "find_spec", lambda name: None)
    with pytest.raises(verb.UsageError) as caught:
        verb.become(["-m", "pytest", "test_x.py"])
    assert caught.value.hint.startswith("`pie python -m pip install pytest`")


@pytest.mark.parametrize("is_on_path", [True, False])
def test_completion_says_when_pie_is_not_on_the_path(monkeypatch, tmp_path, capsys, is_on_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/pie" if is_on_path else None)
    completion_scripts.install("bash")
    assert ("not on the PATH" in capsys.readouterr().err) != is_on_path
