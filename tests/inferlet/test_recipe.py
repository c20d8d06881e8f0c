"""The examples of inferlet/testing/README.md are tests that pass, and that can fail."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from inferlet import testing
from inferlet.eta import gumbel_max

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "inferlet/testing/README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run_pytest(folder: Path, source: str) -> str:
    (folder / "test_example.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_passes(tmp_path, number):
    said = run_pytest(tmp_path, EXAMPLES[number])
    assert re.search(rf"^{EXAMPLES[number].count('def test_')} passed", said, re.MULTILINE), said


def test_a_wrong_sampler_fails_the_example(tmp_path):
    assert "reduce_max(probs) * base" in EXAMPLES[0]
    said = run_pytest(tmp_path, EXAMPLES[0].replace("reduce_max(probs) * base", "base"))
    assert "failed" in said


def test_logits_may_depend_on_the_tokens_so_far():
    def follow(tokens):
        return [50.0 * (number == (tokens[-1] + 1) % 5) for number in range(5)]

    drawn = testing.draw(lambda: gumbel_max, follow, 7, vocab_size=5)
    assert drawn == [1, 2, 3, 4, 0, 1, 2]
