"""Memory that unfinished messages of many have together."""

import asyncio

import pytest

from pie_cli.engine import shares
from pie_cli.engine.shares import Share


class Holder:
    """One that asks, and what it was told."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self.rooms = self.stalls = 0

    def ask(self, size: int) -> bool:
        return self._share.ask(self, size, self._room, self._stall)

    def _room(self) -> None:
        self.rooms += 1

    def _stall(self) -> None:
        self.stalls += 1
        self._share.give(self)


def in_loop(test):
    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.run(test(monkeypatch))

    return run


@in_loop
async def test_those_in_excess_wait_and_are_told_in_turn(_):
    share = Share(100)
    first, second, third, small = (Holder(share) for _ in range(4))
    assert first.ask(60) and first.ask(60)
    assert not second.ask(60) and not third.ask(60)
    assert not small.ask(10), "it does not overtake those who wait"
    assert share.used == 60
    assert first.ask(0)
    assert (second.rooms, third.rooms, small.rooms) == (1, 0, 0)
    share.give(second)
    assert (third.rooms, small.rooms) == (1, 1)
    assert share.used == 70


@in_loop
async def test_the_largest_message_fits_alone(_):
    share = Share(100)
    first, second = Holder(share), Holder(share)
    assert first.ask(1000)
    assert not second.ask(1)
    share.give(first)
    assert second.rooms == 1


@in_loop
async def test_one_that_waits_and_goes_holds_up_nobody(_):
    share = Share(100)
    first, second, third = (Holder(share) for _ in range(3))
    assert first.ask(50) and not second.ask(80) and not third.ask(50)
    share.give(second)
    assert third.rooms == 1


@in_loop
async def test_one_that_stalls_is_at_fault_only_while_others_wait(monkeypatch):
    monkeypatch.setattr(shares, "STALL_SECONDS", 0.0)
    monkeypatch.setattr(shares, "LOOK_SECONDS", 0.01)
    share = Share(100)
    first, second = Holder(share), Holder(share)
    assert first.ask(100)
    await asyncio.sleep(0.05)
    assert first.stalls == 0
    assert not second.ask(100)
    while not second.rooms:
        await asyncio.sleep(0.01)
    assert (first.stalls, second.stalls) == (1, 0)


@in_loop
async def test_one_that_sends_a_byte_now_and_then_does_not_keep_its_memory_for_ever(monkeypatch):
    monkeypatch.setattr(shares, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(shares, "LOOK_SECONDS", 0.01)
    share = Share(100)
    first, second = Holder(share), Holder(share)
    assert first.ask(100)
    assert not second.ask(100)
    for _ in range(500):
        if first.stalls:
            break
        assert first.ask(100)  # one more byte
        await asyncio.sleep(0.01)
    assert (first.stalls, second.stalls, second.rooms) == (1, 0, 1)


@in_loop
async def test_a_message_has_the_more_time_the_longer_it_is(monkeypatch):
    monkeypatch.setattr(shares, "STALL_SECONDS", 0.0)
    monkeypatch.setattr(shares, "BYTES_PER_SECOND", 1e-3)
    share = Share(100)
    first, second = Holder(share), Holder(share)
    assert first.ask(100)
    assert not second.ask(100)
    share._look()
    assert first.stalls == 1, "no byte since"
    assert second.ask(100) and not first.ask(100)
    monkeypatch.setattr(shares, "STALL_SECONDS", 1e3)
    share._look()
    assert second.stalls == 0


@in_loop
async def test_those_who_only_begin_messages_are_through_soon_however_many(monkeypatch):
    monkeypatch.setattr(shares, "STALL_SECONDS", 3600.0)
    monkeypatch.setattr(shares, "FIRST_SECONDS", 0.0)
    share = Share(100)
    first, *others, last = (Holder(share) for _ in range(20))
    assert first.ask(100)
    assert not any(each.ask(100) for each in [*others, last])
    for claim in [*share._held.values(), *share._waiting.values()]:
        claim.time -= 4000.0
    for _ in range(19):
        assert not last.rooms
        share._look()
    assert last.rooms == 1 and [each.stalls for each in (first, *others)] == [1] * 19


@in_loop
async def test_who_gets_memory_soon_has_as_much_time_as_ever(monkeypatch):
    share = Share(100)
    first, second, third = (Holder(share) for _ in range(3))
    assert first.ask(100)
    assert not second.ask(100) and not third.ask(100)
    share.give(first)
    share._look()
    assert second.rooms == 1 and second.stalls == 0
    (claim,) = share._held.values()
    assert not claim.stalls(claim.begun + shares.STALL_SECONDS - 1)
