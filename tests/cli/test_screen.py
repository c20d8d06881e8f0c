"""What `pie run` says of queues, files and values that are nested deeply."""

import json
import resource
from argparse import Namespace

import pytest

from ipc import client as c
from pie_cli.output import bar
from pie_cli.screen import Screen, make_screen
from tests.cli.conftest import SECONDS

OPTIONS = {
    "events": False, "detach": False, "copies": None, "raw": False, "one_line": False,
    "stream": False,
}  # fmt: skip
DEEP = "[" * 900 + "]" * 900


def screen(**options: object) -> Screen:
    return make_screen(Namespace(**{**OPTIONS, **options}))


def test_a_wait_in_the_queue_is_told_once_where_nothing_is_redrawn(capsys):
    shown = screen()
    for position in (3, 2, 1):
        shown.queued(c.Queued(0, "app-1", position, "the engine is full"))
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "waits, 3 in the queue: the engine is full\n")


def test_copies_in_the_queue_are_named(capsys):
    shown = screen(copies=2)
    for name in ("app-1", "app-2"):
        shown.queued(c.Queued(0, name, 1, "full"))
    assert capsys.readouterr().err == (
        "app-1: waits, 1 in the queue: full\napp-2: waits, 1 in the queue: full\n"
    )


def test_the_id_of_a_detached_process_in_the_queue_is_printed_once_and_at_once(capsys):
    shown = screen(detach=True)
    shown.queued(c.Queued(0, "app-1", 1, "full"))
    assert capsys.readouterr().out == "app-1\n"
    shown.launched(c.Launched(0, "app-1", 0.0, "full"), "app.py", "m")
    assert capsys.readouterr().out == ""


def test_a_file_is_told_on_stderr_and_as_an_event(capsys):
    stored = c.Stored("app-1", 5.0, 1, "/there/app-1-1", 1234, "ab" * 32)
    screen().stored(stored)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "file: /there/app-1-1 (1,234 bytes)\n")
    screen(events=True).stored(stored)
    assert json.loads(capsys.readouterr().out) == {
        "event": "file", "time": 5.0, "process": "app-1", "path": "/there/app-1-1", "size": 1234,
        "sha256": "ab" * 32,
    }  # fmt: skip


@pytest.mark.parametrize("events", [True, False])
def test_a_file_that_could_not_be_stored_is_a_warning_and_no_event(capsys, events):
    screen(events=events).stored(c.Stored("a", 0.0, 1, "/full/a-1", 3, "", "the disk is full"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "warning: a file was not stored as `/full/a-1`: the disk is full\n"


def test_a_value_that_is_nested_deeply_is_shown(capsys):
    screen().result(c.Returned("a", 0.0, DEEP))
    assert capsys.readouterr().out == DEEP + "\n"
    shown = screen(events=True)
    shown.sent(c.Sent("a", 0.0, True, DEEP))
    shown.returned(c.Returned("a", 0.0, DEEP))
    message, value = capsys.readouterr().out.splitlines()
    assert message.endswith(f'"message": {DEEP}}}') and value.endswith(f'"value": {DEEP}}}')


def test_launches_in_the_queue_may_be_detached_listed_and_killed(own_engine):
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (240, 240))

    words = ("run", "tests/cli/programs/wait.py", "-n", 70, "--detach")
    launching = own_engine.start(*words, preexec_fn=few_descriptors)
    out, errors = launching.communicate(timeout=SECONDS)
    assert launching.returncode == 0, errors
    ids = out.split()
    assert len(set(ids)) == 70
    assert "in the queue: " in errors
    rows = own_engine.processes()
    assert {row["id"] for row in rows} == set(ids)
    assert {"queued", "running"} <= {row["state"] for row in rows}
    assert own_engine.pie("kill", *ids).returncode == 0
    assert own_engine.processes() == []


def test_errors_of_copies_are_named_beside_events_too(capsys):
    shown = screen(events=True, copies=2)
    shown.failed(c.Error("b-2", 0.0, "ValueError", "one", "", 1))
    assert capsys.readouterr().err == "error: b-2: ValueError: one\n"


@pytest.mark.parametrize("room", [3, 10, 20, 30, 39, 79])
def test_a_bar_fits_on_one_line_of_any_terminal(room):
    shown = [bar(fraction, "reading weights", room) for fraction in (0.0, 0.5, 1.0)]
    assert all(len(line) <= room for line in shown)
    assert room < 20 or [line.split()[-1] for line in shown] == ["0%", "50%", "100%"]
    assert room < 39 or "━" in shown[1]
