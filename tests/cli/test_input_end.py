"""The end of a client's input: the app gets an EOFError from whatever it waits with."""

import pytest

from tests.cli.conftest import wait_until

FILES = """
from inferlet import session
async def main(input):
    got = []
    try:
        while True:
            got.append((await session.receive_file()).decode())
    except EOFError:
        return got
"""
MIXED = """
from inferlet import session
async def main(input):
    try:
        await session.receive_file()
    except EOFError:
        return await session.receive()
"""


def test_the_end_of_stdin_ends_a_wait_for_a_file(engine):
    done = engine.run(FILES)
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_lines_before_the_end_are_kept_for_an_app_that_waits_for_a_file_first(engine):
    done = engine.run(MIXED, stdin="a line\n")
    assert (done.returncode, done.stdout) == (0, '"a line"\n')


@pytest.mark.parametrize("sent", [0, 2])
def test_send_close_ends_a_wait_for_a_file_after_those_that_came(engine, sent):
    run = engine.start("run", engine.write(FILES), "--no-stdin", "--name", f"files{sent}")
    wait_until(lambda: any(row["id"] == f"files{sent}" for row in engine.processes()))
    path = engine.home / "some.txt"
    for number in range(sent):
        path.write_text(str(number))
        assert engine.pie("send", f"files{sent}", "--file", path).returncode == 0
    assert engine.pie("send", f"files{sent}", "--close").returncode == 0
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, str([str(n) for n in range(sent)]).replace("'", '"') + "\n")
