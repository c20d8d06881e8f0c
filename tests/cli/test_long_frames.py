"""Long frames of many inferlets at once: what has come in part is bounded, and turns are taken."""

import asyncio
from collections.abc import Callable

import pytest

from ipc import frames
from pie_cli.engine import quotas, shares
from pie_cli.engine.shares import Memory
from tests.cli.frame_peer import Peer, settle

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
