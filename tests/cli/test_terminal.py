"""`pie run` on a terminal: colour, an indented result, a bar that leaves no trace."""

import os
import pty
import sys

import pytest

from tests.cli.conftest import ROOT, Engine, wait_until


def on_terminal(engine: Engine, *words: str, typed: bytes = b"", **environment: str):
    """(what the terminal got, exit code). `typed` is written once a process runs."""
    variables = {**engine.environment, "TERM": "xterm", **environment}
    variables = {name: value for name, value in variables.items() if value}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "pie_cli", "run", *words], variables)
    if typed:
        engine.wait_for_process()
        os.write(terminal, typed)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_result_is_indented_after_what_was_said(engine):
    shown, code = on_terminal(engine, "tests/cli/programs/talk.py")
    result = '{\n  "input": {},\n  "text": "é"\n}\n'
    assert (shown, code) == (f'one line\n{{"an": "object"}}\na print\n{result}', 0)


def test_streamed_text_ends_its_line_before_anything_else(engine):
    shown, _ = on_terminal(engine, "tests/cli/programs/talk.py", "--stream", "--json")
    assert shown == 'one line\n{"an": "object"}\na print\n{"input": {}, "text": "é"}\n'


@pytest.mark.parametrize(("no_color", "word"), [("1", "error:"), ("", "\x1b[1;31merror:\x1b[0m")])
def test_colour_is_for_those_who_have_not_refused_it(engine, no_color, word):
    shown, _ = on_terminal(engine, "tests/cli/programs/fail.py", NO_COLOR=no_color)
    assert shown.endswith(f"{word} ValueError: nothing is right\n")
    assert ("\x1b" in shown) == (not no_color)


def test_typed_lines_reach_the_app(engine):
    shown, code = on_terminal(engine, "tests/cli/programs/wait.py", typed=b"hello\n")
    assert (shown, code) == ("hello\nnull\n", 0)


def test_ctrl_c_on_the_terminal_ends_the_process(engine):
    shown, code = on_terminal(engine, "tests/cli/programs/wait.py", typed=b"\x03")
    assert code == 130
    assert "the process was interrupted" in shown
    wait_until(lambda: not engine.processes())


def test_the_bar_of_a_starting_engine_leaves_no_trace(own_engine):
    shown, _ = on_terminal(own_engine, "inferlets/hello.py", "--json")
    assert "loading weights [" in shown
    assert shown.rpartition("\r\x1b[K")[2] == '{"hello": "world"}\n'
