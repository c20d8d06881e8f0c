"""`pie run --watch`, and the files whose changes it sees."""

import json
import os
import select
import signal
from pathlib import Path

import pytest

from pie_cli.changes import Changes
from pie_cli.run_loop import Interrupts
from tests.cli.conftest import SECONDS, Engine, is_gone, wait_until

STAYS = "from inferlet import session\nasync def main(input):\n    print({word})\n    await session.receive()\n"


def wait_for_change(changes: Changes) -> list[Path]:
    """What has changed, asked whenever the descriptor says so."""
    while select.select([changes.descriptor], [], [], SECONDS)[0]:
        if found := changes.changed():
            return found
    raise AssertionError("no change was seen")


@pytest.fixture(params=[True, False], ids=["inotify", "polling"])
def changes(request):
    changes = Changes(with_inotify=request.param)
    yield changes
    changes.close()


def test_a_file_that_is_written_or_replaced_or_made_has_changed(changes, tmp_path):
    file, other, missing = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    file.write_text("1")
    other.write_text("1")
    changes.watch([file, other, missing])
    file.write_text("22")
    assert wait_for_change(changes) == [file]
    changes.watch([file, other, missing])
    part = tmp_path / "part"
    part.write_text("3")
    part.replace(other)
    assert wait_for_change(changes) == [other]
    changes.watch([file, other, missing])
    missing.write_text("")
    assert wait_for_change(changes) == [missing]


def test_a_file_behind_a_link_is_seen_where_it_lies(changes, tmp_path):
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "a.py", tmp_path / "link.py"
    file.write_text("1")
    link.symlink_to(file)
    changes.watch([link])
    file.write_text("22")
    assert wait_for_change(changes) == [link]


def test_other_files_of_the_folder_are_no_change(changes, tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    changes.watch([file])
    (tmp_path / "log").write_text("x")
    select.select([changes.descriptor], [], [], 0.3)
    assert changes.changed() == []


def test_a_signal_wakes_a_wait_also_before_its_handler_runs(monkeypatch):
    monkeypatch.setattr(Interrupts, "_on_signal", lambda *_: None)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert select.select([interrupts.descriptor], [], [], 0)[0]


def save(path: Path, text: str) -> None:
    """At once, as most editors do: a watch that looks between two writes sees half a file."""
    part = path.with_name("part")
    part.write_text(text)
    part.replace(path)


class Watched:
    """A running `pie run --watch --events`, and its events."""

    def __init__(self, engine: Engine, *words: object) -> None:
        self.process = engine.start("run", "--watch", "--events", "--no-stdin", *words)

    def next(self, kind: str) -> dict:
        """The next event of a kind."""
        for line in self.process.stdout:
            if (event := json.loads(line))["event"] == kind:
                return event
        raise AssertionError(self.process.stderr.read())

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, errors


def test_a_saved_app_is_launched_anew_and_the_old_process_ends(engine):
    app = engine.write(STAYS.format(word="'one'"), "watched.py")
    watched = Watched(engine, app)
    assert watched.next("stdout")["text"] == "one\n"
    save(app, STAYS.format(word="'two'"))
    assert watched.next("error")["exit"] == 130
    assert watched.next("stdout")["text"] == "two\n"
    code, errors = watched.end()
    assert code == 130
    assert "watched.py has changed" in errors
    wait_until(lambda: not engine.processes())


def test_a_module_and_an_attached_file_count_too(engine):
    engine.write("WORD = 'one'", "beside.py")
    app = engine.write("import beside\ndef main(): return beside.WORD", "importing.py")
    file = app.with_name("data")
    file.write_bytes(b"")
    watched = Watched(engine, app, "--file", f"d={file}")
    assert watched.next("return")["value"] == "one"
    save(app.with_name("beside.py"), "WORD = 'three'")
    assert watched.next("return")["value"] == "three"
    save(file, "changed")
    assert watched.next("return")["value"] == "three"
    assert watched.end()[0] == 130


def test_a_fault_in_the_app_is_told_and_waits_for_the_next_save(engine):
    app = engine.write("def main(): return 1", "faulty.py")
    watched = Watched(engine, app)
    assert watched.next("return")["value"] == 1
    save(app, "def main(: return 2")
    assert watched.next("error")["type"] == "SyntaxError"
    os.replace(app, app.with_suffix(".old"))
    line = ""
    while "No inferlet at" not in line:
        line = watched.process.stderr.readline()
        assert line
    save(app, "def main(): return 3")
    assert watched.next("return")["value"] == 3
    assert watched.end()[0] == 130


def test_an_engine_that_was_lost_meanwhile_is_started_anew(own_engine):
    app = own_engine.write("def main(): return 1", "lost.py")
    watched = Watched(own_engine, app)
    assert watched.next("return")["value"] == 1
    os.kill(pid := own_engine.card()["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(pid))
    save(app, "def main(): return 2")
    assert watched.next("return")["value"] == 2
    assert watched.end()[0] == 130


def test_watching_a_detached_process_is_refused(engine):
    done = engine.pie("run", "--watch", "--detach", "inferlets/hello.py")
    assert done.returncode == 2
    assert "choose one" in done.stderr
