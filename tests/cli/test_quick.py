"""What keeps the command line quick: heavy modules are not imported on the way."""

import subprocess
import sys

import pytest

from pie_cli.completion_words import VERBS
from tests.cli.conftest import ROOT, Engine

SHOW = """
import sys
from pie_cli.__main__ import command
try:
    command(sys.argv[1:])
except SystemExit:
    pass
print("LOADED", *sorted(name for name in sys.modules if "." not in name))
"""


def loaded_by(engine: Engine, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *words], cwd=ROOT, env=engine.environment, text=True,
        capture_output=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return set(done.stdout.rpartition("LOADED ")[2].split())


HEAVY = {"zmq", "msgspec", "asyncio", "rich", "pydantic", "numpy", "torch", "ctypes", "tempfile"}


@pytest.mark.parametrize("verb", ["", *sorted(set(VERBS) - {""})])
def test_help_loads_no_link_no_loop_and_nothing_to_draw_with(engine, verb):
    loaded = loaded_by(engine, *verb.split(), "--help")
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_a_run_loads_no_command_tree_and_no_loop(engine):
    loaded = loaded_by(engine, "run", "inferlets/hello.py")
    assert "zmq" in loaded
    assert not loaded & {"typer", "rich", "asyncio", "pydantic", "numpy", "torch"}
