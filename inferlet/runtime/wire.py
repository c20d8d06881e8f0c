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
OnAnswer = Callable[[int, bytes], bool]  # whether the frame is the answer, which it takes
OnEnd = Callable[[BaseException | None], None]  # why no more is read; None: the hub is gone


class Wire:
    """Reads and writes `fd` from the running event loop."""

    def __init__(self, fd: int, on_frame: OnFrame, on_end: OnEnd) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._reader = frames.FrameReader(frames.MAX_LAUNCH_FRAME, frames.MAX_LAUNCH_FRAME)
        self._on_frame, self._on_end = on_frame, on_end
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._is_waiting = False
        self._postponed: deque[tuple[int, bytes]] = deque()  # came while an answer was awaited
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

    def wait_for(self, is_answer: OnAnswer) -> None:
        """Blocks until `is_answer` takes a frame; all others are handled later, in order.

        Nothing of the app runs meanwhile. ConnectionError when the hub is gone.
        """
        while not self._take_answer(is_answer):
            select.select([self._fd], [self._fd] if self._unsent else [], [])
            self._send()
        self._loop.call_soon(self._readable)  # what was postponed

    def _take_answer(self, is_answer: OnAnswer) -> bool:
        data = self._receive()
        if data == b"":
            raise ConnectionError("the engine is gone")
        is_there = False
        for kind, body in self._reader.feed(data or b""):
            if is_there or not is_answer(kind, body):
                self._postponed.append((kind, body))
            else:
                is_there = True
        return is_there

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
        while self._postponed:
            self._on_frame(*self._postponed.popleft())
        data = self._receive()
        if data is None:
            return True
        for kind, body in self._reader.feed(data):
            self._on_frame(kind, body)
        return bool(data)

    def _receive(self) -> bytes | None:
        """Bytes; none: the hub is gone; None: nothing is there."""
        try:
            return os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return b""
