"""The process's one descriptor: bytes out without blocking the loop, frames in."""

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable

from ipc import frames

READ_SIZE = 256 << 10
MAX_UNSENT = 8 << 20  # bytes; beyond, a writer waits for the hub

OnFrame = Callable[[int, bytes], None]
OnEnd = Callable[[BaseException | None], None]  # why no more is read; None: the hub is gone


class Wire:
    """Reads and writes `fd` from the running event loop."""

    def __init__(self, fd: int, on_frame: OnFrame, on_end: OnEnd) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._reader = frames.FrameReader(frames.MAX_LAUNCH_FRAME)
        self._on_frame, self._on_end = on_frame, on_end
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._is_waiting = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._readable)

    def write(self, data: bytes) -> None:
        """Sends now what fits, the rest when there is room. Waits only when too much is unsent."""
        self._unsent.append(memoryview(data))
        self._unsent_size += len(data)
        self._send()
        if self._unsent_size > MAX_UNSENT:
            self.drain()
        elif self._unsent and not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._fd, self._writable)

    def drain(self) -> None:
        """Waits until everything is sent."""
        while self._unsent:
            select.select([], [self._fd], [])
            self._send()

    def _send(self) -> None:
        while self._unsent:
            head = self._unsent[0]
            try:
                sent = os.write(self._fd, head)
            except BlockingIOError:
                return
            except OSError:  # the hub is gone: nobody will read it
                self._unsent.clear()
                self._unsent_size = 0
                return
            self._unsent_size -= sent
            if sent == len(head):
                self._unsent.popleft()
            else:
                self._unsent[0] = head[sent:]

    def _writable(self) -> None:
        self._send()
        if not self._unsent:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        try:
            if self._read():
                return
            error = None
        except BaseException as raised:  # noqa: BLE001 - for want of memory, above all
            error = raised
        self._loop.remove_reader(self._fd)
        self._on_end(error)

    def _read(self) -> bool:
        """Reads once; False: the hub is gone."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for kind, body in self._reader.feed(data):
            self._on_frame(kind, body)
        return bool(data)
