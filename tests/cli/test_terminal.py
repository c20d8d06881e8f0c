"""`pie run` on a terminal: colour, an indented result, a bar that leaves no trace."""

import os
import pty
import sys
from collections.abc import Callable

import pytest

from tests.cli import fault_worker
from tests.cli.conftest import ROOT, Engine, wait_until


def on_terminal(
    engine: Engine,
    *words: str,
    after: bytes = b"",
    then: Callable[[int], object] = lambda terminal: None,
    **environment: str,
) -> tuple[str, int]:
    """(what the terminal got, exit code). `then` is done once the terminal has shown `after`."""
    variables = {**engine.environment, "TERM": "xterm", **environment}
    variables = {name: value for name, value in variables.items() if value}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "pie_cli", "run", *words], variables)
    shown = b""
    while True:
        if after and after in shown:
            after = b""
            then(terminal)
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def typing(keys: bytes) -> Callable[[int], object]:
    return lambda terminal: os.write(terminal, keys)


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
    shown, code = on_terminal(
        engine, "tests/cli/programs/chatter.py", after=b"say something", then=typing(b"hello\n\x04")
    )
    said = shown.replace("^D\b\b", "")  # how a terminal shows the key
    assert (said, code) == ("say something\nhello\nyou said hello\n1\n", 0)


def test_ctrl_c_on_the_terminal_ends_the_process(engine):
    shown, code = on_terminal(
        engine, "tests/cli/programs/chatter.py", after=b"say something", then=typing(b"\x03")
    )
    assert code == 130
    assert "the process was interrupted" in shown
    wait_until(lambda: not engine.processes())


def test_the_bar_of_a_starting_engine_leaves_no_trace(own_engine):
    own_engine.extra["PIE_WORKER"] = "tests.cli.fault_worker"
    hold = own_engine.home / fault_worker.HOLD
    hold.touch()
    shown, _ = on_terminal(
        own_engine, "inferlets/hello.py", "--json",
        after=b"loading weights [", then=lambda _: hold.unlink(),
    )  # fmt: skip
    assert shown.rpartition("\r\x1b[K")[2] == '{"hello": "world"}\n'
