"""Hundreds of inferlets do anything on a pool of a third of what they want, and some are killed: no
wrong token, no leak, no stall."""

import pytest

from tests.worker.soak import soak


@pytest.mark.parametrize("overlap", [False, True])
def test_a_crowd_with_a_third_of_its_memory_gets_the_right_tokens(overlap: bool) -> None:
    world = soak(3, 24, 121, seed=1, overlap=overlap, least=60)
    assert world.num_finished > 20 and world.num_killed > 0
    assert world.engine.state.swap._next > 0, "nobody was suspended"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_hundreds_of_inferlets_for_a_minute(seed: int) -> None:
    world = soak(60, 60, 301, seed, overlap=bool(seed % 2), least=301)
    assert world.num_finished + world.num_killed > 300
    print(
        f"{world.num_checked} tokens checked, {world.num_finished} finished, "
        f"{world.num_killed} killed, {world.engine.scheduler.waves} waves, "
        f"longest stall {world.longest_stall:.2f} s"
    )
