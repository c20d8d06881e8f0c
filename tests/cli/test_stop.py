"""`pie stop` by one who may not signal the engine: with root's rights to files and no others, say."""

import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT, SECONDS

PREPARED = """
import errno, os, runpy, seccompy, sys
table = seccompy.Filter()
table.errno("kill", errno.EPERM)
table.load()
may_connect = sys.argv.pop(1) == "True"
os.access = lambda *_, **__: may_connect
sys.argv[0] = "pie"
runpy.run_module("pie_cli", run_name="__main__")
"""


@pytest.mark.parametrize("may_connect", [False, True])
def test_an_engine_that_may_not_be_signalled_is_asked_or_said_to_be_anothers(own_engine, may_connect):
    assert own_engine.run("def main(): pass").returncode == 0
    pid = own_engine.card()["pid"]
    done = subprocess.run(
        [sys.executable, "-c", PREPARED, str(may_connect), "stop"], env=own_engine.environment,
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if may_connect:
        assert (done.returncode, done.stderr) == (0, "") and own_engine.card() is None
        return
    assert done.returncode == 3 and own_engine.card()["pid"] == pid
    assert done.stderr.startswith(
        f"error: the engine with `fake` (process {pid}) is another user's: this one may not end it\n"
        f"\nhint: `kill {pid}`, by its owner or by root, ends it"
    )
