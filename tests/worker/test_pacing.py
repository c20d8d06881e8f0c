"""The pace of prompts beside decodes: from times alone, so it can be played without a machine."""

import random

import pytest

from worker.pacing import STRETCH, Pace
from worker.state import Segment


def rows(*counts: int) -> list[Segment]:
    return [Segment(None, 0, count) for count in counts]


def play(pace: Pace, row_seconds: float, waves: int, noise: float = 0.0) -> list[int]:
    """Waves of 16 decodes beside an endless prompt, after five without; the rows of each."""
    disturbance = random.Random(1)

    def took(seconds: float) -> float:
        return seconds * (1 + noise * disturbance.random() ** 4)

    for _ in range(5):
        pace.observe(rows(*[1] * 16), took(0.020))
    given = []
    for _ in range(waves):
        given.append(pace.prompt_rows(16))
        pace.observe(rows(*[1] * 16, given[-1]), took(0.020 + given[-1] * row_seconds))
    return given


@pytest.mark.parametrize("row_seconds", [2e-3, 1e-3, 1e-4, 1e-5])
def test_prompts_stretch_a_wave_as_far_as_said(row_seconds: float) -> None:
    wanted = (STRETCH - 1) * 0.020 / row_seconds
    last = play(Pace(512, 8, 8), row_seconds, 40)[-1]
    assert last == pytest.approx(min(max(wanted, 8), 512), rel=0.1)


def test_disturbed_waves_never_make_it_much_longer() -> None:
    given = play(Pace(512, 8, 8), 5e-4, 300, noise=20.0)
    assert max(given[10:]) < 4 * (STRETCH - 1) * 0.020 / 5e-4


def test_what_is_known_of_other_sizes_serves_until_this_one_is_seen() -> None:
    pace = Pace(512, 8, 8)
    assert pace.prompt_rows(64) == 64
    play(pace, 1e-3, 40)
    assert pace.prompt_rows(64) == pace.prompt_rows(16) == pytest.approx(
        (STRETCH - 1) * 20, abs=2
    )


def test_a_short_prompt_says_nothing_about_longer_ones() -> None:
    pace = Pace(512, 8, 8)
    pace.observe(rows(1, 1), 0.010)
    pace.observe(rows(1, 1, 9), 0.011)
    assert pace.prompt_rows(2) == 64


def test_a_wave_in_which_many_start_at_once_sets_no_pace() -> None:
    pace = Pace(512, 8, 8)
    play(pace, 1e-3, 40)
    before = pace.prompt_rows(16)
    pace.observe(rows(1, 500), 0.520)
    assert pace.prompt_rows(16) == before
