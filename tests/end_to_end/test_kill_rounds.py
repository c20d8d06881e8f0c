"""Random parts killed under load, on the tiny model. `PIE_KILL_ROUNDS`: how often."""

import os
from pathlib import Path

import pytest

from tests.end_to_end.kill_rounds import rounds

NUM_ROUNDS = int(os.environ.get("PIE_KILL_ROUNDS", "10"))  # before a fixture takes it away


@pytest.mark.timeout(300 + 120 * NUM_ROUNDS)
def test_random_kills_under_load_leave_nothing_and_end_nobody_else(tmp_path: Path):
    rounds(tmp_path, NUM_ROUNDS, seed=0)
