"""Streams that are closed or full, and words that are no text."""

import os
import subprocess
import sys

import pytest

from pie_cli import output, run, settings, starting
from pie_cli.__main__ import command
from pie_cli.stdin_lines import MAX_LINE
from pie_cli.usage import UsageError
from tests.cli.conftest import ROOT, SECONDS

HELLO = "from inferlet import session\ndef main(i):\n  session.send('hi\\n')\n  return 7"


def shell(engine, redirection: str, *words: object, **extra: str) -> subprocess.CompletedProcess:
    """`pie WORDS…` with a redirection of sh."""
    script = f'exec "$0" -m pie_cli "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, sys.executable, *map(str, words)], cwd=ROOT, env=engine.environment | extra,
        text=True, capture_output=True, timeout=SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [("<&-", "7\n", "hi\n"), (">&-", "", "hi\n"), ("2>&-", "7\n", ""), ("<&- >&- 2>&-", "", "")],
)
def test_closed_streams_are_done_without(engine, closed, out, err):
    done = shell(engine, closed, "run", engine.write(HELLO))
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["run", "--about", "inferlets/hello.py"], ["version"], ["--help"]]
)
def test_a_full_stdout_is_named(engine, words, unbuffered):
    done = shell(engine, ">/dev/full", *words, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        3, "error: cannot write the output: No space left on device\n",
    )  # fmt: skip


def test_a_result_that_cannot_be_written_is_no_success(engine):
    done = shell(engine, ">/dev/full", "run", engine.write(HELLO))
    assert done.returncode == 3
    assert done.stderr == "hi\nerror: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(("options", "shown"), [([], "hi\n7\n"), (["--stream"], "hi\n7\n")])
def test_what_follows_an_open_line_in_one_file_is_on_its_own(engine, options, shown):
    app = engine.write("from inferlet import session\ndef main(i):\n  session.send('hi')\n  return 7")
    done = shell(engine, "2>&1", "run", app, "--no-stdin", *options)
    assert (done.returncode, done.stdout) == (0, shown)


def test_a_full_stderr_ends_without_a_traceback(engine):
    done = shell(engine, "2>/dev/full", "run", engine.write(HELLO))
    assert (done.returncode, done.stderr) == (3, "")


FAULTY = "def main(i): raise ValueError('no')"


@pytest.mark.parametrize("options", [[], ["-n", "2"], ["--events"]])
def test_a_full_stderr_leaves_an_app_at_fault_its_exit_code(engine, options):
    done = shell(engine, "2>/dev/full", "run", engine.write(FAULTY), *options)
    assert (done.returncode, done.stderr) == (1, "")
    assert bool(done.stdout) == (options == ["--events"])


@pytest.mark.parametrize("words", [["run", "nowhere.py"], ["kill"], ["send", "x", "{"]])
def test_a_full_stderr_leaves_wrong_usage_its_exit_code(engine, words):
    assert shell(engine, "2>/dev/full", *words).returncode == 2


@pytest.mark.parametrize("before", [["run"], ["run", "inferlets/hello.py", "--"], ["kill"]])
def test_words_that_are_not_utf8_are_refused(engine, before):
    done = engine.pie(*before, "a\udcffb")
    assert (done.returncode, done.stderr) == (2, "error: `a\\xffb` is not UTF-8\n")


def test_a_home_that_is_not_utf8_is_refused(monkeypatch):
    monkeypatch.setenv("PIE_HOME", "/a\udcff")
    with pytest.raises(UsageError, match="PIE_HOME"):
        settings.home()


def test_half_a_surrogate_pair_in_the_input_arrives(engine):
    app = engine.write("def main(input): return ord(input['a'])")
    assert engine.pie("run", app, "--input", '{"a": "\\ud800"}').stdout == "55296\n"


def test_a_line_without_end_is_refused(engine):
    app = "from inferlet import session\nasync def main(i): return await session.receive()"
    done = engine.run(app, stdin="y" * (MAX_LINE + (1 << 17)))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: a line of stdin is longer than 16,777,216 characters\n")


def test_a_folder_that_cannot_be_written_is_named(own_engine):
    # A file where the engines' folder goes fails for root too.
    (own_engine.home / "run").write_text("")
    done = own_engine.pie("run", own_engine.write(HELLO))
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "PIE_HOME" in done.stderr


def test_an_empty_log_on_a_full_disk_says_so(tmp_path, monkeypatch):
    log = tmp_path / "engine.log"
    log.write_text("")
    assert starting.last_words(log) == "it wrote nothing"
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert starting.last_words(log) == "the disk is full"


@pytest.mark.parametrize("words", [["version"], ["config", "show"], ["completion", "bash"], ["--help"]])
def test_a_reader_that_leaves_ends_any_verb_alike(engine, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pie_cli", *words], cwd=ROOT, env=engine.environment,
        stdout=writer, stderr=subprocess.PIPE, timeout=SECONDS,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("is_told", "written"), [(False, "\n"), (True, "")])
def test_ctrl_c_before_the_launch_ends_the_line_unless_that_was_done(monkeypatch, capsys, is_told, written):
    def interrupted(options):
        raise output.Interrupted if is_told else KeyboardInterrupt

    monkeypatch.setattr(run, "run", interrupted)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command(["run", "app.py"]) == 130
    assert capsys.readouterr().err == written
