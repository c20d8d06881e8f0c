"""`pie ps --watch`: what fits on a terminal, and what a pipe is told."""

import os
import signal

from ipc import client as c
from pie_cli import ps
from tests.cli.conftest import SECONDS

WAIT = "import asyncio\nasync def main(): await asyncio.Event().wait()"


def row(id: str, age: float = 1.0, tokens: int = 0) -> c.ProcessRow:
    return c.ProcessRow(id, "app.py", "me", "running", age, tokens, 0, 0, 0, "full", "fake", age)


def test_what_does_not_fit_on_a_terminal_is_cut_not_wrapped():
    text = "\n".join(f"line {number} is long" for number in range(9))
    lines = ps.cropped(text, os.terminal_size((10, 5))).splitlines()
    assert lines == ["line 0 is ", "line 1 is ", "line 2 is ", "… 6 more"]
    assert ps.cropped("ab\ncd", os.terminal_size((10, 5))) == "ab\ncd"


def test_a_pipe_is_told_changes_alone_with_an_empty_line_between(capsys):
    shown = ps.Shown()
    told = [[row("a")], [row("a", age=2.0)], [row("a", tokens=5)], [], [], [row("b")]]
    assert [shown.is_new(rows) for rows in told] == [True, False, True, True, False, True]
    assert capsys.readouterr().out == "\n\n"


def test_the_watch_in_a_pipe_is_the_table_of_each_change(engine):
    app = engine.write(WAIT)
    first = engine.pie("run", "--detach", "--name", "first-of-two", app).stdout.strip()
    watching = engine.start("ps", "--watch")
    lines = iter(watching.stdout.readline, "")
    assert next(lines).split()[:2] == ["id", "app"]
    engine.pie("run", "--detach", "--name", "second-of-two", app)
    try:
        for line in lines:
            if line.startswith("second-of-two"):
                break
            assert line == "\n" or line.split()[0] in (first, "id"), line
    finally:
        watching.send_signal(signal.SIGINT)
        engine.pie("kill", first, "second-of-two")
        assert watching.wait(SECONDS) == 130


def test_following_the_log_of_a_killed_process_tells_how_it_ended(engine):
    id = engine.pie("run", "--detach", engine.write("print(1)\n" + WAIT)).stdout.strip()
    following = engine.start("logs", "-f", id)
    assert following.stdout.readline() == "1\n"
    engine.pie("kill", id)
    _, errors = following.communicate(timeout=SECONDS)
    assert (following.returncode, errors) == (
        0, f"`{id}` has ended: the process was ended by `pie kill`\n",
    )  # fmt: skip
    assert engine.pie("logs", "-f", id).stderr == errors, "also of one that has ended"
    assert engine.pie("logs", id).stderr == ""
