"""One inferlet's socket: caps, budgets and partial writes, with a socket pair in one loop."""

import asyncio
import socket
import time
import tracemalloc
from collections.abc import Callable

import pytest

from ipc import frames
from ipc.types import MAX_RESULT_BYTES_OF_ALL, Limits
from pie_cli.engine import quotas, shares
from pie_cli.engine.frame_socket import FrameSocket
from pie_cli.engine.shares import Memory


class Peer:
    """The inferlet's end, and what the hub's end reported."""

    def __init__(self, memory: Memory | None = None) -> None:
        ours, self.sock = socket.socketpair()
        ours.setblocking(False)
        self.sock.setblocking(False)
        self.frames: list[tuple[int, bytes]] = []
        self.faults: list[str] = []
        self.num_rooms = 0
        self.speakers = quotas.Speakers()
        self.on_frames = lambda found: None
        self.hub = FrameSocket(
            ours, self._frames, self._room, self._fault, speakers=self.speakers, memory=memory
        )  # fmt: skip

    def _frames(self, found: list[tuple[int, bytes]]) -> None:
        self.frames += found
        self.on_frames(found)

    def _room(self) -> None:
        self.num_rooms += 1

    def _fault(self, ending) -> None:
        self.faults.append(ending.message)

    async def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += await asyncio.get_running_loop().sock_recv(self.sock, size - len(data))
        return data


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def with_peer(test: Callable) -> Callable[[pytest.MonkeyPatch], None]:
    """The async test, run in a loop of its own with a peer."""

    async def run(monkeypatch: pytest.MonkeyPatch) -> None:
        peer = Peer()
        try:
            await test(peer, monkeypatch)
        finally:
            peer.hub.close()
            peer.sock.close()

    def run_test(monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.run(run(monkeypatch))

    return run_test


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


def test_others_are_heard_for_a_while():
    speakers = quotas.Speakers()
    speakers.heard("a", 100.0)
    assert not speakers.has_other(100.0)
    speakers.heard("b", 100.0)
    speakers.heard("b", 100.01)
    assert speakers.has_other(100.01)
    later = 100.01 + quotas.HEARD_SECONDS
    speakers.heard("b", later)
    assert not speakers.has_other(later)


def test_reads_grow_for_cheap_frames_and_shrink_for_those_that_make_work():
    size = quotas.FIRST_READ
    for _ in range(20):
        size = quotas.next_read(size, size, seconds=0.0)
    assert size == quotas.MAX_READ
    assert quotas.next_read(size, 900, seconds=0.0) == size, "no more was there to be read"
    assert quotas.next_read(size, size, quotas.MAX_SECONDS) == size
    assert quotas.next_read(size, size, 4 * quotas.MAX_SECONDS) == size // 4
    assert quotas.next_read(size, 40, 4 * quotas.MAX_SECONDS) == quotas.MIN_READ


def test_a_bucket_pays_back_at_its_rate():
    bucket = quotas.Bucket(rate=10, burst=20, level=20, time=0.0)
    assert bucket.spend(20, now=0.0) == 0
    assert bucket.spend(5, now=0.0) == 0.5
    assert bucket.spend(0, now=0.5) == 0
    assert bucket.spend(20, now=100.0) == 0, "no more than the burst comes back"
    assert bucket.spend(1, now=100.0) > 0


def test_the_largest_results_of_a_process_are_no_fault():
    with_cells = MAX_RESULT_BYTES_OF_ALL + Limits().channels // 7  # a ring holds 7 cells or more
    assert with_cells < quotas.MAX_UNREAD


LONG = 4 << 20  # bytes of a frame


class Senders:
    """Peers that have each begun a long frame, with room for two of them."""

    def __init__(self, count: int) -> None:
        self.memory = Memory(2 * LONG, 2 * LONG)
        self.share = self.memory.unfinished
        self.peers = [Peer(self.memory) for _ in range(count)]
        for peer in self.peers:
            peer.sock.send(frames.pack(frames.ENGINE, bytes(LONG))[:1000])

    def end(self) -> None:
        for peer in self.peers:
            peer.hub.close()
            peer.sock.close()


async def send_rest(peer: Peer) -> None:
    await asyncio.get_running_loop().sock_sendall(peer.sock, bytes(LONG + 5 - 1000))


def with_senders(test: Callable) -> Callable[[pytest.MonkeyPatch], None]:
    def run_test(monkeypatch: pytest.MonkeyPatch) -> None:
        async def run() -> None:
            senders = Senders(6)
            try:
                async with asyncio.timeout(30):
                    await test(senders, monkeypatch)
            finally:
                senders.end()

        asyncio.run(run())

    return run_test


@with_senders
async def test_long_frames_of_many_take_turns_and_all_arrive(senders, _):
    """However large each may be, what has come of them in part is bounded."""
    sending = [asyncio.create_task(send_rest(peer)) for peer in senders.peers]
    await settle()
    while not all(peer.frames for peer in senders.peers):
        kept = sum(len(peer.hub._reader._buffer) for peer in senders.peers)
        assert kept <= 2 * LONG + len(senders.peers) * quotas.MAX_READ
        await asyncio.sleep(0)
    await asyncio.gather(*sending)
    assert senders.share.used == 0 and not any(peer.faults for peer in senders.peers)


@with_senders
async def test_short_frames_pass_beside_long_ones_that_wait(senders, _):
    await settle()
    peer = Peer(senders.memory)
    peer.sock.send(frames.pack(frames.HUB, b"x"))
    await settle()
    assert peer.frames == [(frames.HUB, b"x")]
    peer.hub.close()


@with_senders
async def test_a_long_frame_that_is_never_finished_is_a_fault_once_others_wait(senders, monkeypatch):
    monkeypatch.setattr(shares, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(shares, "LOOK_SECONDS", 0.02)
    for peer in senders.peers[:2]:
        peer.hub._on_fault = lambda ending, peer=peer: (peer._fault(ending), peer.hub.close())
    sending = [asyncio.create_task(send_rest(peer)) for peer in senders.peers[2:]]
    await asyncio.gather(*sending)
    while not all(peer.frames for peer in senders.peers[2:]):
        await asyncio.sleep(0.01)
    assert all("half sent" in peer.faults[0] for peer in senders.peers[:2])
    assert not any(peer.faults for peer in senders.peers[2:])


@with_senders
async def test_a_process_that_is_held_still_ends_its_long_frame(senders, _):
    """Else one client that is behind would keep memory from all others."""
    await settle()
    first = senders.peers[0]
    first.hub.hold(True)
    await send_rest(first)
    while not first.frames:
        await asyncio.sleep(0)
    first.sock.send(frames.pack(frames.HUB, b"x"))
    await settle()
    assert len(first.frames) == 1


@with_senders
async def test_a_process_that_is_held_begins_no_other_long_frame(senders, _):
    """However close they follow on one another."""
    await settle()
    first, *others = senders.peers
    for peer in others:
        peer.hub.close()
    first.hub.hold(True)
    many = bytes(LONG + 5 - 1000) + frames.pack(frames.ENGINE, bytes(LONG)) * 3
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(first.sock, many))
    while not first.frames:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(first.frames) == 1 and not first.hub._reader._buffer
    first.hub.hold(False)
    while len(first.frames) < 4:
        await asyncio.sleep(0)
    await sending


@with_senders
async def test_beyond_what_may_wait_for_all_the_one_that_leaves_most_unread_is_at_fault(senders, _):
    small, large, *others = senders.peers
    small.hub.write(bytes(LONG // 2))
    large.hub.write(bytes(LONG))
    others[0].hub.write(bytes(LONG // 4))
    assert not any(peer.faults for peer in senders.peers)
    others[1].hub.write(bytes(LONG))
    assert [len(peer.faults) for peer in senders.peers] == [0, 1, 0, 0, 0, 0]
    assert "unread together, and this one most" in large.faults[0]
    large.hub.write(bytes(10 * LONG))
    assert len(large.faults) == 1, "nothing more is kept for it"
    assert senders.memory.unread.total <= 2 * LONG
    assert await small.read(LONG // 2) == bytes(LONG // 2)
    await settle()
    assert senders.memory.unread.total < LONG * 3 // 2
