"""Files of an engine that are something else: exit 3, and which path it is."""

import fcntl
import json
import resource
import subprocess
import sys
import threading

import pytest

from pie_cli import cards
from pie_cli.engine.daemon import take_lock
from pie_cli.settings import EngineFolder
from tests.cli.conftest import ROOT, SECONDS

HELLO = "inferlets/hello.py"


@pytest.mark.parametrize("name", ["lock", "start.lock", "engine.json", "hub.sock"])
def test_a_folder_where_a_file_belongs_is_exit_3_and_named(own_engine, name):
    path = own_engine.home / "run" / "fake" / name
    path.mkdir(parents=True)
    done = own_engine.pie("run", HELLO)
    assert done.returncode == 3
    assert f"`{path}`: Is a directory" in done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr
    path.rmdir()
    assert own_engine.pie("run", HELLO).returncode == 0


def test_settings_that_are_a_folder_are_exit_2_and_named(own_engine):
    path = own_engine.home / "config.toml"
    path.mkdir()
    done = own_engine.pie("run", HELLO)
    assert done.returncode == 2
    assert f"cannot read `{path}`: Is a directory" in done.stderr


def with_no_room(engine, *words: object) -> subprocess.CompletedProcess:
    """`pie WORDS…` where no file may grow."""
    no_room = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # noqa: E731
    return subprocess.run(
        [sys.executable, "-m", "pie_cli", *map(str, words)], cwd=ROOT, env=engine.environment,
        text=True, capture_output=True, timeout=SECONDS, preexec_fn=no_room,  # noqa: PLW1509
    )  # fmt: skip


def test_settings_that_find_no_room_are_named_and_leave_nothing_behind(own_engine):
    before = set(own_engine.home.iterdir())
    done = with_no_room(own_engine, "config", "set", "run.model", "mine")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"cannot use `{own_engine.home / 'config.toml'}`: File too large" in done.stderr
    assert set(own_engine.home.iterdir()) == before


def test_a_new_app_that_finds_no_room_is_named_and_leaves_nothing_behind(own_engine, tmp_path):
    done = with_no_room(own_engine, "new", tmp_path / "my_app")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: cannot write `{tmp_path / 'my_app.py'}`: File too large\n"
    assert not (tmp_path / "my_app.py").exists()


def test_a_new_app_where_none_can_be_made_is_exit_2(own_engine):
    done = own_engine.pie("new", "/proc/my_app")
    assert (done.returncode, done.stderr) == (
        2, "error: cannot write `/proc/my_app.py`: No such file or directory\n",
    )  # fmt: skip


def test_the_lock_of_a_killed_engine_is_waited_for_whatever_its_card_says(tmp_path):
    folder = EngineFolder(tmp_path)
    cards.write(folder, "fake", "/the/log")
    facts = json.loads(folder.card.read_text())
    folder.card.write_text(json.dumps({**facts, "start_time": 1}))  # nobody's any more
    lock = folder.lock.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.2, lock.close).start()
    assert take_lock(folder) is not None


def test_the_lock_of_a_running_engine_is_not_waited_for(tmp_path):
    folder = EngineFolder(tmp_path)
    cards.write(folder, "fake", "/the/log")
    with folder.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert take_lock(folder) is None


def test_settings_of_a_home_that_cannot_be_made_are_exit_2(own_engine):
    own_engine.extra["PIE_HOME"] = "/proc/nowhere/home"
    done = own_engine.pie("config", "set", "run.model", "mine")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot make `/proc/nowhere/home`: No such file or directory" in done.stderr


def test_a_current_folder_that_is_gone_is_exit_2(own_engine, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-m", "pie_cli", "run", str(ROOT / HELLO), "-o", "out"]
    done = subprocess.run(
        ["sh", "-c", 'cd "$0"; rmdir "$0"; exec "$@"', str(gone), *command], text=True,
        env=own_engine.environment | {"PYTHONSAFEPATH": "1"}, capture_output=True, timeout=SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: the current folder does not exist any more\n\n"
        "hint: change to another, or give whole paths\n"
    )
