"""Processes that are launched ahead: used in order, replaced, and never in the way."""

import asyncio
import errno
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pie_cli.engine.launcher import Limits
from tests.sandbox.conftest import Arena

NUM_SPARES = 2


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(num_spares=NUM_SPARES)
    yield arena
    arena.close()


def waiting(arena: Arena) -> list:
    return [child.launched for child in arena.launcher._spares]


async def until_known(arena: Arena) -> list:
    """The spares, once their pids are known."""
    while any(spare.pid is None for spare in waiting(arena)):
        await asyncio.sleep(0.01)
    return waiting(arena)


def test_a_launch_takes_the_oldest_spare_and_another_one_is_made(arena: Arena):
    async def scenario():
        oldest, other = await until_known(arena)
        started = await arena.start("exit_with", {"code": 7}, Limits())
        assert started is oldest
        assert waiting(arena)[0] is other and len(waiting(arena)) == NUM_SPARES
        return (await arena.finish(started)).exit.status

    assert arena.run(scenario()) == 7


def test_other_limits_get_a_process_of_their_own(arena: Arena):
    async def scenario():
        before = waiting(arena)
        tight = replace(Limits(), memory=64 << 20)
        started = await arena.start("allocate_much_memory", {}, tight)
        assert started not in before and waiting(arena) == before
        return (await arena.finish(started)).outcome

    assert arena.run(scenario()) == "blocked"


def test_a_spare_has_the_limits_it_is_used_with(arena: Arena):
    assert arena.outcome("open_many_descriptors", {}, Limits()).outcome == "blocked"


def test_a_launch_does_without_a_new_spare_when_descriptors_run_out(arena: Arena, monkeypatch):
    def none_left(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario():
        oldest, _ = await until_known(arena)
        with monkeypatch.context() as patch:
            patch.setattr("pie_cli.engine.launcher.socket.socketpair", none_left)
            started = await arena.start("exit_with", {"code": 5}, Limits())
            assert started is oldest
        return (await arena.finish(started)).exit.status

    assert arena.run(scenario()) == 5


def test_spares_that_ended_are_passed_over(arena: Arena):
    async def scenario():
        for spare in await until_known(arena):
            os.kill(spare.pid, 9)
            await spare.exited
        return (await arena.attack("exit_with", {"code": 3}, Limits())).exit.status

    assert arena.run(scenario()) == 3
    assert len(waiting(arena)) == NUM_SPARES


def test_more_launches_than_spares_all_run(arena: Arena):
    async def scenario():
        started = [await arena.start("exit_with", {"code": c}, Limits()) for c in range(20)]
        return [(await arena.finish(each)).exit.status for each in started]

    assert arena.run(scenario()) == list(range(20))


def test_a_new_zygote_has_new_spares(arena: Arena):
    async def scenario():
        lost = await until_known(arena)
        os.kill(arena.launcher.zygote_pid, 9)
        while not arena.deaths:
            await asyncio.sleep(0.01)
        assert waiting(arena) == []
        await arena.launcher.start()
        assert not set(map(id, waiting(arena))) & set(map(id, lost))

    arena.run(scenario())
    assert arena.outcome("exit_with", {"code": 5}, Limits()).exit.status == 5


def test_close_ends_the_spares():
    arena = Arena(num_spares=NUM_SPARES)
    pids = [spare.pid for spare in arena.run(until_known(arena))]
    arena.close()
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
