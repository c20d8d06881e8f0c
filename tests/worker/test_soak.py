"""Hundreds of inferlets do anything on a pool of a third of what they want, and some are killed: no
wrong token, no leak, no stall."""

import asyncio

import pytest

from tests.worker.soak import World, each_task_its_runtime


def soak(seconds: float, at_once: int, num_pages: int, seed: int, overlap: bool) -> World:
    with each_task_its_runtime():
        world = World(num_pages, seed, overlap)
        asyncio.run(world.run(seconds, at_once))
    state = world.engine.state
    assert state.pool.num_free == state.pool.capacity
    assert state.swap.num_used == 0
    assert world.engine.launcher.swap_space.num_pages == 0
    assert not (state.processes or state.active or state.computing or state.events)
    assert not world.engine.launcher.rings._slabs
    return world


@pytest.mark.parametrize("overlap", [False, True])
def test_a_crowd_with_a_third_of_its_memory_gets_the_right_tokens(overlap: bool) -> None:
    world = soak(3, 24, 121, seed=1, overlap=overlap)
    assert world.num_finished > 20 and world.num_killed > 0
    assert world.engine.state.swap._next > 0, "nobody was suspended"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_hundreds_of_inferlets_for_a_minute(seed: int) -> None:
    world = soak(60, 60, 301, seed, overlap=bool(seed % 2))
    assert world.num_finished + world.num_killed > 300
    print(
        f"{world.num_checked} tokens checked, {world.num_finished} finished, "
        f"{world.num_killed} killed, {world.engine.scheduler.waves} waves, "
        f"longest stall {world.longest_stall:.2f} s"
    )
