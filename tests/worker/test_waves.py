"""Golden waves: what runs together, in which order, on which pages. The files are the claims.

To rewrite them after a change that was meant:
PIE_GOLDEN=write python -m pytest tests/worker/test_waves.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.wave_script import Script

FILES = sorted((Path(__file__).parents[1] / "golden/waves").glob("*.txt"))
REWRITE = os.environ.get("PIE_GOLDEN") == "write"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_waves_are_those_of_the_golden_trace(file: Path) -> None:
    text = file.read_text()
    trace = Script().run(text)
    if REWRITE:
        file.write_text(trace)
    assert trace == text or REWRITE


def test_there_are_golden_waves() -> None:
    assert len(FILES) >= 8


def test_scheduling_runs_where_torch_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from tests.worker.wave_script import Script\n"
        f"print(Script().run(open({str(FILES[0])!r}).read()))"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True)
