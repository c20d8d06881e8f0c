"""Many inferlets at once: each gets what it gets alone."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.conftest import ROOT, environment

pytestmark = pytest.mark.model
SUBJECTS = ["France", "a fox", "the sea", "winter", "a computer", "music", "the moon", "bread"]
INPUTS = [
    {"prompt": f"{opening} {subject}", "max_tokens": 10, "temperature": 0.8, "seed": seed}
    for seed, opening in enumerate(["The story of", "I never knew that", "Here is", "Why"])
    for subject in SUBJECTS
]


def run(home, app: str, value: dict) -> object:
    done = subprocess.run(
        [sys.executable, "-m", "pie_cli", "run", app, "--no-stdin", "--input", json.dumps(value)],
        env=environment(home), cwd=ROOT, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("app", ["inferlets/completion.py", "inferlets/sample.py"])
def test_thirty_two_runs_at_once_give_what_each_gives_alone(home, app):
    alone = [run(home, app, value) for value in INPUTS]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda value: run(home, app, value), INPUTS))
    assert together == alone
    assert len({tuple(answer["tokens"]) for answer in alone}) > 20
