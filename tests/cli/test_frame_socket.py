"""One inferlet's socket: caps, budgets and partial writes, with a socket pair in one loop."""

import asyncio
import time
import tracemalloc

import pytest

from ipc import frames
from pie_cli.engine import quotas
from tests.cli.frame_peer import settle, with_peer


@with_peer
async def test_frames_arrive_whole_whatever_their_pieces(peer, _):
    data = frames.pack(frames.ENGINE, b"abc") + frames.pack(frames.HUB, b"")
    for byte in data:
        peer.sock.send(bytes([byte]))
        await settle()
    assert peer.frames == [(frames.ENGINE, b"abc"), (frames.HUB, b"")]


@with_peer
async def test_what_does_not_fit_is_written_when_the_process_reads(peer, _):
    data = bytes(range(256)) * (40 << 10)
    peer.hub.write(data)
    peer.hub.write(b"end")
    assert not peer.hub.has_room
    assert await peer.read(len(data) + 3) == data + b"end"
    await settle()
    assert peer.hub.has_room and peer.num_rooms > 0


@with_peer
async def test_what_waits_for_a_process_that_is_gone_is_dropped_at_once(peer, monkeypatch):
    """Not piece by piece: there may be a million, and everybody waits."""
    attempts = []
    send = peer.hub._send
    monkeypatch.setattr(peer.hub, "_send", lambda data: attempts.append(1) or send(data))
    peer.hub.write(bytes(4 << 20))
    for _ in range(1000):
        peer.hub.write(b"more")
    peer.sock.close()
    attempts.clear()
    while peer.hub._unwritten:
        await asyncio.sleep(0)
    peer.hub.write(b"more")
    assert len(attempts) == 1 and not peer.faults
    assert peer.hub.has_room and not peer.hub._backlog.total


@with_peer
async def test_a_process_that_never_reads_is_at_fault_once_beyond_the_cap(peer, _):
    peer.hub._max_unread = 1 << 20
    peer.hub.write(bytes(4 << 20), trusted=True)
    assert not peer.faults
    for _ in range(20):
        peer.hub.write(bytes(100 << 10))
        if peer.faults:
            break
    assert "unread" in peer.faults[0]


@with_peer
async def test_short_frames_that_nobody_reads_are_counted_with_what_holds_them(peer, _):
    """A process that asks and never reads the answers: a few bytes each, and an object."""
    peer.hub._max_unread = 8 << 20
    tracemalloc.start()
    for _ in range(1_000_000):
        peer.hub.write(frames.pack(frames.HUB, b"x"))
        if peer.faults:
            break
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peer.faults and most < 16 << 20


@with_peer
async def test_an_illegal_frame_is_a_fault_and_nothing_more_is_read(peer, _):
    peer.sock.send(b"\xff\xff\xff\xff\x01" + frames.pack(frames.HUB, b"x"))
    await settle()
    assert "broke the protocol" in peer.faults[0]
    peer.sock.send(frames.pack(frames.HUB, b"x"))
    peer.hub.hold(True)
    peer.hub.hold(False)
    await settle()
    assert peer.frames == []


@with_peer
async def test_a_held_process_is_not_read_until_it_is_released(peer, _):
    peer.hub.hold(True)
    peer.sock.send(frames.pack(frames.HUB, b"x"))
    await settle()
    assert peer.frames == []
    peer.hub.hold(False)
    await settle()
    assert peer.frames == [(frames.HUB, b"x")]


@with_peer
async def test_beyond_its_budget_a_process_waits_and_then_goes_on(peer, monkeypatch):
    pauses = [0.01, 600.0]
    monkeypatch.setattr(quotas.ReadBudget, "spend", lambda *_: pauses.pop(0))
    peer.sock.send(frames.pack(frames.HUB, b"x"))
    await settle()
    peer.sock.send(frames.pack(frames.HUB, b"y"))
    while len(peer.frames) < 2:
        await asyncio.sleep(0.01)
    peer.sock.send(frames.pack(frames.HUB, b"z"))
    await settle()
    assert len(peer.frames) == 2 and not pauses


@with_peer
async def test_drain_reads_what_an_ended_process_left_behind(peer, _):
    peer.hub.hold(True)
    peer.sock.send(frames.pack(frames.HUB, b"last"))
    peer.sock.close()
    peer.hub.drain()
    assert peer.frames == [(frames.HUB, b"last")]


@with_peer
async def test_of_many_short_frames_as_many_are_taken_in_one_turn_as_its_time_allows(
    peer, monkeypatch
):
    """Others wait for one turn of the loop: 256 bytes of the shortest frames at first, then few."""
    clock = Clock(monkeypatch)
    peer.on_frames = lambda found: clock.work(len(found) * quotas.MAX_SECONDS / 4)
    peer.sock.send(frames.pack(frames.HUB, b"") * 10_000)
    counts = []
    while sum(counts) < 10_000:
        await asyncio.sleep(0)
        counts.append(len(peer.frames) - sum(counts))
    assert max(counts) <= quotas.FIRST_READ // 5 + 1
    assert max(counts[5:]) <= quotas.MIN_READ // 5 + 1


@with_peer
async def test_while_others_speak_a_process_that_makes_much_work_waits_for_its_share(
    peer, monkeypatch
):
    clock = Clock(monkeypatch)
    peer.on_frames = lambda found: clock.work(quotas.SHARE_BURST)
    for _ in range(8):
        peer.speakers.heard("another", asyncio.get_running_loop().time())
        peer.sock.send(frames.pack(frames.HUB, b"x"))
        await settle()
    assert len(peer.frames) < 8
    while len(peer.frames) < 8:
        await asyncio.sleep(0.01)


@with_peer
async def test_a_process_that_speaks_alone_has_all_of_the_hub(peer, monkeypatch):
    clock = Clock(monkeypatch)
    peer.on_frames = lambda found: clock.work(1.0)
    for _ in range(8):
        peer.sock.send(frames.pack(frames.HUB, b"x"))
        await settle()
    assert len(peer.frames) == 8


class Clock:
    """The CPU time that the hub has used, as the test wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._time = 0.0
        monkeypatch.setattr(time, "thread_time", lambda: self._time)

    def work(self, seconds: float) -> None:
        self._time += seconds
