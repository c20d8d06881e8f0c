"""Completion: the words that may come next, the scripts of the shells, and how they are set up."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pie_cli import completion, completion_generate, completion_scripts
from pie_cli.__main__ import command
from tests.cli.conftest import ROOT
from tests.cli.test_quick import loaded_by


def test_the_table_of_verbs_is_that_of_the_command_tree():
    """`python -m pie_cli.completion_generate` writes it anew."""
    assert completion_generate.FILE.read_text(encoding="utf-8") == completion_generate.text()


@pytest.mark.parametrize(
    ("line", "kind", "some"),
    [
        ("", "words", {"run", "ps", "models", "completion"}),
        ("ru", "words", {"run"}),
        ("--", "words", {"--help", "--install-completion"}),
        ("run ", "files", set()),
        ("run app.py --", "words", {"--watch", "--limit", "--file", "--model"}),
        ("run app.py --file x", "files", set()),
        ("run app.py --file n = x", "files", set()),
        ("run app.py -o ", "folders", set()),
        ("run app.py -- --pro", "files", set()),
        ("run app.py --limit mem", "words", {"memory="}),
        ("run app.py --limit memory=1G,cp", "words", {"memory=1G,cpu="}),
        ("run app.py --limit memory = 1G,cp", "words", {"1G,cpu="}),
        ("run app.py --limit memory = 1G,cpu = 60,pa", "words", {"60,pages="}),
        ("run app.py --limit memory = 1", "words", set()),
        ("serve --limit memory=1G,cp", "words", {"memory=1G,cpu="}),
        ("serve --sandbox ", "words", {"auto", "full"}),
        ("models ", "words", {"add", "list", "show"}),
        ("config set engine.k", "words", {"engine.keep_alive"}),
        ("config set engine.sandbox ", "words", {"auto", "full"}),
        ("config set engine.address l", "words", {"local"}),
        ("config set run.files ", "folders", set()),
        ("config set engine.key ", "files", set()),
        ("config set engine.keep_alive ", "words", set()),
        ("config set nothing ", "words", set()),
        ("completion f", "words", {"fish"}),
        ("no-such-verb ", "words", set()),
        ("ps extra ", "words", set()),
    ],
)
def test_what_may_come_next(line, kind, some):
    *before, current = line.split(" ")
    found_kind, found = completion.complete(before, current)
    assert found_kind == kind
    assert some <= set(found)
    assert all(word.startswith(current) for word in found)


def test_models_are_those_of_the_store(clean_environment):
    assert completion.complete(["run", "a.py", "--model"], "") == ("words", [])
    for name in ("one", "other"):
        (clean_environment / "models" / name).mkdir(parents=True)
    assert completion.complete(["models", "show"], "on") == ("words", ["one"])
    assert completion.complete(["run", "a.py", "--model"], "o") == ("words", ["one", "other"])
    assert completion.complete(["config", "set", "run.model"], "o") == ("words", ["one", "other"])


def test_a_limit_is_offered_once():
    _, found = completion.complete(["run", "a.py", "--limit"], "memory=1G,")
    assert "memory=1G,cpu=" in found and "memory=1G,memory=" not in found


def test_process_ids_are_those_that_live_and_are_not_typed_yet(engine):
    id = engine.pie("run", "--detach", "tests/cli/programs/wait.py").stdout.strip()
    try:
        assert engine.pie("__complete", 2, "pie", "kill", "").stdout == f"words\n{id}\n"
        assert engine.pie("__complete", 3, "pie", "kill", id, "").stdout == "words\n"
    finally:
        engine.pie("kill", id)


def test_an_answer_loads_no_command_tree(engine):
    loaded = loaded_by(engine, "__complete", "1", "pie", "r")
    assert not loaded & {"typer", "rich", "zmq", "msgspec", "asyncio", "pydantic", "inspect"}


def test_nonsense_completes_nothing_and_says_nothing(engine):
    done = engine.pie("__complete", "x")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("shell", completion_scripts.SCRIPTS)
def test_a_script_is_printed_and_its_shell_takes_it(shell, capsys, tmp_path):
    assert command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == completion_scripts.SCRIPTS[shell]
    if not shutil.which(shell):
        return
    file = tmp_path / "script"
    file.write_text(script)
    done = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_with_the_script(engine, tmp_path):
    """As readline would call it."""
    pie = tmp_path / "pie"
    pie.write_text(f'#!/bin/sh\nexec "{os.sys.executable}" -m pie_cli "$@"\n')
    pie.chmod(0o755)
    program = completion_scripts.BASH + (
        'compopt() { :; }\nCOMP_WORDS=(pie models sh) COMP_CWORD=2\n_pie_complete "$0" sh models\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", program, pie], capture_output=True, text=True, cwd=ROOT,
        env=engine.environment, check=True,
    )  # fmt: skip
    assert done.stdout == "show\n"


def test_an_unknown_shell_is_exit_2(capsys):
    assert command(["completion", "tcsh"]) == 2
    assert "there is one for bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize("shell", completion_scripts.SCRIPTS)
def test_installing_twice_adds_one_line_and_keeps_what_is_there(shell, tmp_path, monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    rc = tmp_path / f".{shell}rc"
    rc.write_text("mine")
    completion_scripts.install(shell)
    completion_scripts.install(shell)
    written = [path for path in tmp_path.rglob("*pie*") if path.is_file()]
    written += [path for path in tmp_path.rglob("completion.*")]
    assert [path.read_text() for path in written] == [completion_scripts.SCRIPTS[shell]]
    lines = [] if shell == "fish" else [f"source '{written[0]}'"]
    assert rc.read_text().splitlines() == ["mine", *lines]


def test_the_option_sets_up_the_shell_that_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/fish")
    monkeypatch.setattr(completion_scripts, "current_shell", lambda: "fish")
    assert command(["--install-completion"]) == 0
    assert re.search(r"wrote .*/fish/completions/pie.fish", capsys.readouterr().err)
    assert Path(tmp_path, ".config/fish/completions/pie.fish").exists()
