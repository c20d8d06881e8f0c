"""The pace of prompts beside decodes: from costs alone, so it can be played without a machine."""

import pytest

from worker.pacing import STRETCH, Pace
from worker.state import Segment


def rows(*counts: int) -> list[Segment]:
    return [Segment(None, 0, count) for count in counts]


def play(pace: Pace, decodes: int, decode_seconds: float, row_seconds: float, waves: int) -> int:
    """Waves of decodes beside an endless prompt; the rows of the last one."""
    prompt = 0
    for _ in range(waves):
        prompt = pace.prompt_rows(decodes)
        pace.observe(rows(*[1] * decodes, prompt), decode_seconds + prompt * row_seconds)
    return prompt


@pytest.mark.parametrize("row_seconds", [1e-3, 1e-4, 1e-5])
def test_prompts_stretch_a_wave_as_far_as_said(row_seconds: float) -> None:
    pace = Pace(row_budget=512, min_rows=8, decode_rows=8)
    for _ in range(5):
        pace.observe(rows(*[1] * 16), 0.020)
    prompt = play(pace, 16, 0.020, row_seconds, 40)
    wanted = (STRETCH - 1) * 0.020 / row_seconds
    assert prompt == pytest.approx(min(max(wanted, 8), 512), rel=0.1)


def test_what_is_known_of_other_sizes_serves_until_this_one_is_seen() -> None:
    pace = Pace(row_budget=512, min_rows=8, decode_rows=8)
    pace.observe(rows(1, 1), 0.010)
    pace.observe(rows(100), 0.100)
    assert pace.prompt_rows(64) == 10
    assert Pace(512, 8, 8).prompt_rows(64) == 128


def test_one_slow_wave_changes_little() -> None:
    pace = Pace(row_budget=512, min_rows=8, decode_rows=8)
    for _ in range(20):
        pace.observe(rows(1, 1), 0.010)
        pace.observe(rows(1, 1, 50), 0.060)
    before = pace.prompt_rows(2)
    pace.observe(rows(1, 1, 50), 9.0)
    assert pace.prompt_rows(2) >= before / 2
