"""People at a terminal: keys are typed into a shell in tmux, and the screen is what it shows."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli import fault_worker
from tests.cli.conftest import ROOT, Engine, wait_until

PROMPT = "ready>"

if not shutil.which("tmux"):
    warnings.warn("tmux is not installed: nothing is typed into a terminal", stacklevel=1)
    pytest.skip("tmux is not installed (.ci/run installs it)", allow_module_level=True)


class Terminal:
    """One window of a tmux server of its own, 100 columns wide."""

    def __init__(self, folder, environment: dict[str, str], shell: str = "bash") -> None:
        self._socket = str(folder / "tmux")
        (folder / "pie").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pie_cli "$@"\n')
        (folder / "pie").chmod(0o755)
        variables = {
            **environment, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "screen",
            "HISTFILE": "", "LANG": "C.UTF-8", "PYTHONUTF8": "1",
        }  # fmt: skip
        start = f"cd {shlex.quote(str(ROOT))}; exec {shell_command(shell, folder)}"
        command = ["tmux", "-S", self._socket, "-f", os.devnull, "new-session", "-d", "-x", "100"]
        subprocess.run([*command, "-y", "40", start], env=variables, check=True)
        self.wait_for(rf"^{PROMPT} ?$")

    def type(self, text: str, enter: bool = True) -> None:
        self._tmux("send-keys", "-l", "--", text)
        if enter:
            self.press("Enter")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-J").rstrip("\n")

    def wait_for(self, pattern: str) -> str:
        """The screen, once a line of it matches."""

        def shown() -> str | None:
            screen = self.screen()
            return screen if re.search(pattern, screen, re.MULTILINE) else None

        try:
            return wait_until(shown)
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not on the screen:\n{self.screen()}") from None

    def run(self, command: str) -> str:
        """What a command shows, between its line and the next prompt."""
        self._tmux("send-keys", "-R")
        self._tmux("clear-history")
        self.press("C-l")
        self.type(f"{command}; echo exit $?")
        screen = self.wait_for(rf"(?s)exit \d+\n{PROMPT}")
        return screen.partition("\n")[2].rpartition(f"\n{PROMPT}")[0]

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def shell_command(shell: str, folder: Path) -> str:
    """An interactive shell with our prompt and completion, and nothing of the user's."""
    rc = folder / f".{shell}rc"
    if shell == "fish":
        rc.write_text(
            "set -g fish_greeting\nset -g fish_autosuggestion_enabled 0\n"
            f"function fish_prompt; echo -n '{PROMPT} '; end\n"
            "pie completion fish | source\n"
        )
        return f"fish --no-config -C 'source {rc}' -i"
    rc.write_text(f"PS1='{PROMPT} '\nsource <(pie completion {shell})\n")
    if shell == "zsh":
        return f"env ZDOTDIR={folder} zsh -d -i"
    return f"bash --noprofile --rcfile {rc} -i"


@pytest.fixture
def terminal(engine: Engine, tmp_path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, engine.environment)
    yield terminal
    terminal.close()


def test_a_result_is_indented_and_errors_have_their_exit_code(terminal):
    shown = terminal.run("pie run tests/cli/programs/talk.py")
    assert (
        shown == 'one line\n{"an": "object"}\na print\n{\n  "input": {},\n  "text": "é"\n}\nexit 0'
    )
    assert terminal.run("pie run tests/cli/programs/fail.py").endswith(
        "error: ValueError: nothing is right\nexit 1"
    )
    assert terminal.run("pie run nowhere.py") == (
        "error: No inferlet at `nowhere.py`\n\n"
        "hint: `pie run` takes a path to a Python file; examples are in `inferlets/`\nexit 2"
    )


def test_a_typed_line_reaches_the_app_and_ctrl_d_ends_its_inbox(terminal, engine):
    terminal.type("pie run tests/cli/programs/chatter.py; echo exit $?")
    terminal.wait_for("^say something$")
    terminal.type("hello there")
    terminal.wait_for("^you said hello there$")
    terminal.press("C-d")
    screen = terminal.wait_for(r"^exit \d+$")
    assert "exit 0" in screen and "1\nexit 0" in screen


def test_ctrl_c_ends_the_process_with_130(terminal, engine):
    terminal.type("pie run tests/cli/programs/chatter.py; echo exit $?")
    terminal.wait_for("^say something$")
    terminal.press("C-c")
    screen = terminal.wait_for(r"^exit \d+$")
    assert "^C\nerror: the process was interrupted\nexit 130" in screen
    wait_until(lambda: not engine.processes())


def views(engine: Engine, id: str) -> int:
    """How many hear of a process."""
    rows = json.loads(engine.pie("ps", "--json", "--wide").stdout)
    return next(row["views"] for row in rows if row["id"] == id)


def test_a_process_is_launched_listed_joined_left_and_killed(terminal, engine):
    assert terminal.run("pie run --detach --name talker tests/cli/programs/chatter.py") == (
        "talker\nexit 0"
    )
    listed = terminal.run("pie ps").splitlines()
    assert listed[0].split()[:4] == ["id", "app", "client", "state"]
    assert listed[1].split()[0] == "talker"
    terminal.run("pie send talker first")
    terminal.type("pie attach talker; echo exit $?")
    terminal.wait_for("^you said first$")
    terminal.type("second")
    terminal.wait_for("^you said second$")
    terminal.press("C-c")
    terminal.wait_for(r"^left `talker`, which goes on; `pie kill talker` ends it$")
    terminal.wait_for(r"exit 130$")
    assert "you said second" in terminal.run("pie logs talker")
    terminal.type("pie attach --no-past talker; echo exit $?")
    wait_until(lambda: views(engine, "talker") == 1)  # a shell may still have the terminal
    terminal.type("third")
    terminal.wait_for("^you said third$")
    terminal.press("C-d")
    terminal.wait_for(r"left `talker`, which goes on; `pie kill talker` ends it\nexit 0$")
    assert terminal.run("pie kill talker") == "exit 0"
    assert terminal.run("pie ps") == "no live processes\nexit 0"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_press_of_tab_completes_verbs_options_and_ids(engine, tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    with closing(Terminal(tmp_path, {**engine.environment, "HOME": str(tmp_path)}, shell)) as terminal:
        complete(terminal, engine)


def complete(terminal: Terminal, engine: Engine) -> None:
    terminal.type("pie mod", enter=False)
    terminal.press("Tab")
    terminal.wait_for(rf"^{PROMPT} pie models *$")
    terminal.type("sh", enter=False)
    terminal.press("Tab")
    terminal.wait_for(rf"^{PROMPT} pie models show *$")
    terminal.press("Tab")
    terminal.wait_for(rf"^{PROMPT} pie models show fake *$")
    terminal.press("C-u")
    terminal.type("pie run tests/cli/programs/wai", enter=False)
    terminal.press("Tab")
    terminal.wait_for(rf"^{PROMPT} pie run tests/cli/programs/wait.py *$")
    terminal.type("--wat", enter=False)
    terminal.press("Tab")
    terminal.wait_for(r"wait.py --watch *$")
    terminal.press("C-u")
    engine.pie("run", "--detach", "--name", "waiting-long", "tests/cli/programs/wait.py")
    terminal.type("pie kill wai", enter=False)
    terminal.press("Tab")
    terminal.wait_for(rf"^{PROMPT} pie kill waiting-long *$")
    terminal.press("Enter")
    wait_until(lambda: not engine.processes())


def test_ps_watch_redraws_and_ctrl_c_leaves(terminal, engine):
    terminal.type("pie ps --watch; echo exit $?")
    terminal.wait_for("^no live processes$")
    engine.pie("run", "--detach", "--name", "seen", "tests/cli/programs/wait.py")
    terminal.wait_for("^seen ")
    engine.pie("kill", "seen")
    screen = terminal.wait_for("^no live processes$")
    assert "seen" not in screen and "tokens in" not in screen
    terminal.press("C-c")
    terminal.wait_for(r"exit 130$")


def test_removing_a_model_asks_and_no_keeps_it(terminal, engine):
    terminal.type("pie models remove fake; echo exit $?")
    terminal.wait_for(r"^Remove fake \(.*\)\? \[y/N\]")
    terminal.type("n")
    terminal.wait_for("^exit 1$")
    assert (engine.home / "models/fake/config.json").exists()


def test_a_watched_app_is_launched_anew_when_it_is_saved(terminal, engine):
    app = engine.write("def main(): return 'first'", "saved.py")
    terminal.type(f"pie run --watch {app}; echo exit $?")
    terminal.wait_for('^"first"$')
    terminal.wait_for("^waiting for a change; Ctrl-C ends$")
    app.write_text("def main(): return 'second'")
    terminal.wait_for('^"second"$')
    terminal.wait_for("(?s)waiting for a change.*waiting for a change; Ctrl-C ends$")
    terminal.press("C-c")
    screen = terminal.wait_for(r"exit 130$")
    assert screen.partition('"second"')[2].splitlines()[2:4] == ["^C", "the watch has ended"]


def test_an_attached_command_leaves_no_empty_line_at_ctrl_c(terminal, engine):
    engine.pie("run", "--detach", "--name", "left", "tests/cli/programs/chatter.py")
    terminal.type("pie attach left; echo exit $?")
    terminal.wait_for("^say something$")
    terminal.press("C-c")
    terminal.wait_for(r"\^C\nleft `left`, which goes on; `pie kill left` ends it\nexit 130$")
    engine.pie("kill", "left")


def test_serve_shows_a_bar_while_it_loads_and_says_that_it_leaves(own_engine, tmp_path):
    own_engine.extra["PIE_WORKER"] = "tests.cli.fault_worker"
    hold = own_engine.home / fault_worker.HOLD
    hold.touch()
    folder = tmp_path / "terminal"
    folder.mkdir()
    with closing(Terminal(folder, own_engine.environment)) as terminal:
        terminal.type("pie serve; echo exit $?")
        terminal.wait_for(r"^loading weights \[")
        hold.unlink()
        screen = terminal.wait_for("^ready: `fake`")
        assert "loading weights" not in screen
        terminal.press("C-c")
        terminal.wait_for(r"^\^C\nthe engine leaves, and ends its processes\nexit 0$")
