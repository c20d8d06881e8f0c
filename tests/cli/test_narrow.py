"""Verbs that print tables, on a terminal of 80 or 100 columns: nothing is broken within a word."""

import json
import os
import pty
import struct
import sys
import termios
from fcntl import ioctl

import pytest

from tests.cli.conftest import ROOT, Engine

WAIT = "import asyncio\nasync def main(): await asyncio.Event().wait()"
LONG = "a-process-with-a-long-name-for-its-kind-of-work"


def on_terminal(engine: Engine, columns: int, *words: str) -> list[str]:
    """What a terminal of that width got, in lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        variables = {**engine.environment, "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "pie_cli", *words], variables)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture(scope="module")
def busy(engine: Engine) -> Engine:
    app = engine.write(WAIT, "an_app_with_a_long_name_that_says_what_it_does.py")
    for name in (LONG, "b"):
        done = engine.pie("run", "--detach", "--name", name, app)
        assert done.returncode == 0, done.stderr
    yield engine
    engine.pie("kill", LONG, "b")


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("words", [("ps",), ("ps", "--wide")])
def test_ps_keeps_ids_and_says_which_columns_have_no_room(busy, columns, words):
    lines = on_terminal(busy, columns, *words)
    head, *rows, note = lines
    assert {row.split()[0] for row in rows} == {LONG, "b"}
    assert max(map(len, [head, *rows])) <= columns
    assert note.startswith("no room for: ") and "state" in head.split()


def test_ps_in_a_pipe_is_whole(busy):
    done = busy.pie("ps", "--wide")
    assert "an_app_with_a_long_name_that_says_what_it_does.py" in done.stdout
    assert "position" in done.stdout.splitlines()[0] and done.stderr == ""


@pytest.mark.parametrize("columns", [80, 100])
def test_settings_are_shown_whole_between_words(engine, columns):
    lines = on_terminal(engine, columns, "config", "show")
    assert max(len(line) for line in lines if not line.startswith("file: ")) <= columns
    meanings = {row["help"] for row in json.loads(engine.pie("config", "show", "--json").stdout)}
    words = " ".join(" ".join(lines).split())
    assert {word for help in meanings for word in help.split()} <= set(words.split())


def test_models_keep_their_names_and_paths_are_whole_or_not_there(engine):
    path = json.loads(engine.pie("models", "list", "--json").stdout)[0]["path"]
    for columns in (60, 300):
        lines = on_terminal(engine, columns, "models", "list")
        assert any(line.split()[:2] == ["*", "fake"] for line in lines)
        assert (path in "\n".join(lines)) == (columns == 300)
        assert any(line.startswith("no room for: path") for line in lines) == (columns == 60)
        assert "/" not in lines[1] or columns == 300


def test_what_the_doctor_says_is_broken_between_words(engine):
    lines = on_terminal(engine, 80, "doctor")
    words = engine.pie("doctor").stdout.split()
    assert all(len(line) <= 80 or "/" in line for line in lines)
    assert {word for word in words if len(word) < 50 and word.isalpha()} <= set(" ".join(lines).split())
