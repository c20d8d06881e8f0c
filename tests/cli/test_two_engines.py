"""Two engines in one home: commands know whose a process is."""

import json
import shutil

import pytest

WAIT = "tests/cli/programs/wait.py"


@pytest.fixture
def two(own_engine):
    shutil.copytree(own_engine.home / "models/fake", own_engine.home / "models/other")
    for model in ("fake", "other"):
        done = own_engine.pie("run", WAIT, "--detach", "--name", f"of-{model}", "--model", model)
        assert done.returncode == 0, done.stderr
    return own_engine


def test_ps_shows_the_model_of_each(two):
    lines = two.pie("ps").stdout.splitlines()
    assert lines[0].split()[-1] == "model"
    assert sorted(line.split()[-1] for line in lines[1:]) == ["fake", "other"]
    rows = json.loads(two.pie("ps", "--json", "--wide").stdout)
    assert {row["id"]: row["model"] for row in rows} == {"of-fake": "fake", "of-other": "other"}


def test_commands_find_the_engine_that_has_the_process(two):
    assert two.pie("send", "of-other", "hello").returncode == 0
    done = two.pie("attach", "of-other", "--no-stdin")  # it has ended, and is remembered
    assert (done.returncode, done.stdout) == (0, "null\n")
    assert two.pie("logs", "of-fake").returncode == 0
    assert two.pie("kill", "of-fake").returncode == 0
    assert json.loads(two.pie("ps", "--json").stdout) == []


def test_one_kill_ends_processes_of_both(two):
    assert two.pie("kill", "of-fake", "of-other").returncode == 0
    assert json.loads(two.pie("ps", "--json").stdout) == []
