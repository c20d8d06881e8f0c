"""The other end of one inferlet's socket, in the loop of the hub's end."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from pie_cli.engine import quotas
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
