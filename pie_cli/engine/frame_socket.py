"""The trusted end of one inferlet's socket: cuts frames, keeps budgets, buffers what it may not read.

Never waits, never trusts what it reads, and knows nothing of what the frames mean.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable

from ipc import frames
from ipc.errors import ProtocolError
from ipc.types import Limits
from pie_cli.engine import endings, quotas
from pie_cli.engine.endings import Ending
from pie_cli.engine.shares import STALL_SECONDS, Memory

Frames = list[tuple[int, bytes]]  # kind, body


class FrameSocket:
    """Reads and writes frames from the event loop until `close`."""

    def __init__(
        self,
        sock: socket.socket,
        on_frames: Callable[[Frames], None],
        on_room: Callable[[], None],
        on_fault: Callable[[Ending], None],
        frames_per_second: int = Limits().messages,
        speakers: quotas.Speakers | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`on_frames`: of one read. `on_room`: little is left to write. `on_fault`: the process
        must end, and why. `speakers`: of all sockets of one loop. `memory`: of all
        sockets, too."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_frames, self._on_room, self._on_fault = on_frames, on_room, on_fault
        self._speakers = speakers or quotas.Speakers()
        memory = memory or Memory(quotas.MAX_UNFINISHED, quotas.MAX_UNREAD_OF_ALL)
        self._share, self._backlog = memory.unfinished, memory.unread
        self._unfinished = 0  # bytes of the long frame that has come in part
        self._waits_for_share = False
        self._reader = frames.FrameReader()
        self._budget = quotas.ReadBudget(frames_per_second, self._loop.time())
        self._read_size = quotas.FIRST_READ
        self._pause: asyncio.TimerHandle | None = None  # beyond its budget
        self._is_deaf = False  # it is gone, or has not read for too long: nothing more is written
        self._held = False  # its client is behind
        self._finished = False  # nothing more will be read
        self._unwritten: deque[memoryview] = deque()
        self._unwritten_size = 0
        self._max_unread = quotas.MAX_UNREAD
        self._loop.add_reader(sock, self._readable)

    @property
    def has_room(self) -> bool:
        """Whether messages that can wait may be written now."""
        return self._unwritten_size < quotas.INBOX_ROOM

    def write(self, data: bytes, *, trusted: bool = False) -> None:
        """Write, or keep what does not fit now. Trusted data does not count as unread."""
        if self._sock.fileno() < 0 or self._is_deaf:
            return
        if trusted:
            self._max_unread += len(data)
        if not self._unwritten:
            sent = self._send(data)
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
            self._loop.add_writer(self._sock, self._writable)
        self._unwritten.append(memoryview(data))
        self._unwritten_size += len(data)
        if self._unread > self._max_unread:
            self._give_up(endings.does_not_read(self._unread))
        else:
            self._count_unread()

    @property
    def _unread(self) -> int:
        """Short frames cost more than they hold: a process may ask, and never read the answers."""
        return self._unwritten_size + len(self._unwritten) * quotas.UNREAD_FRAME

    def _count_unread(self) -> None:
        trusted = self._max_unread - quotas.MAX_UNREAD
        self._backlog.set(self, max(0, self._unread - trusted), self._is_largest)

    def _is_largest(self) -> None:
        self._give_up(endings.largest_unread(self._unread, quotas.MAX_UNREAD_OF_ALL))

    def _give_up(self, ending: Ending) -> None:
        """Keep nothing more for the process, which ends."""
        self._is_deaf = True
        self._drop_unwritten()
        self._on_fault(ending)

    def _drop_unwritten(self) -> None:
        self._loop.remove_writer(self._sock)
        self._unwritten.clear()
        self._unwritten_size = 0
        self._backlog.set(self, 0, self._is_largest)

    def hold(self, held: bool) -> None:
        """Whether to leave unread what the process writes, but for the rest of a long frame."""
        if held != self._held:
            self._held = held
            self._read_or_wait()

    def drain(self) -> None:
        """Read all that the process left behind; it has ended."""
        self._finish_reading()
        while self._sock.fileno() >= 0 and (data := self._receive()):
            if not self._feed(data):
                return

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._finish_reading()
        self._drop_unwritten()
        self._reader = frames.FrameReader()  # nobody waits until the last reference is gone
        self._sock.close()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # the process is gone: its exit says why
            self._is_deaf = True
            return len(data)

    def _writable(self) -> None:
        while self._unwritten:
            data = self._unwritten[0]
            sent = self._send(data)
            if self._is_deaf:
                self._drop_unwritten()
                return
            self._unwritten_size -= sent
            if sent < len(data):
                self._unwritten[0] = data[sent:]
                break
            self._unwritten.popleft()
        else:
            self._loop.remove_writer(self._sock)
        self._count_unread()
        if self.has_room:
            self._on_room()

    def _readable(self) -> None:
        data = self._receive()
        if data is None:
            return
        if not data:
            self._finish_reading()
            return
        self._feed(data)

    def _receive(self) -> bytes | None:
        """Bytes; none at the end; None when nothing is there."""
        try:
            # One that is held may end its long frame, and begin no other.
            most = self._reader.missing if self._held and not self._finished else 0
            return self._sock.recv(min(self._read_size, most or self._read_size))
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _feed(self, data: bytes) -> bool:
        start = time.thread_time()
        found: Frames = []
        fault = None
        try:
            for frame in self._reader.feed(data):
                found.append(frame)
        except ProtocolError as error:
            fault = error
        try:
            self._on_frames(found)
        except ProtocolError as error:
            fault = error
        if fault:
            self._finish_reading()
            self._on_fault(endings.broke_protocol(str(fault)))
            return False
        self._spend(len(data), len(found), time.thread_time() - start)
        if self._unfinished or self._reader.unfinished:
            self._ask_for_share()
        return True

    def _ask_for_share(self) -> None:
        """A long frame is read further once there is memory for it."""
        if self._finished:
            return
        self._unfinished = self._reader.unfinished
        may = self._share.ask(self, self._unfinished, self._has_share, self._stalls)
        self._waits_for_share = not may
        self._read_or_wait()

    def _has_share(self) -> None:
        self._waits_for_share = False
        self._read_or_wait()

    def _stalls(self) -> None:
        self._on_fault(endings.stalls(STALL_SECONDS))

    def _spend(self, num_bytes: int, num_frames: int, seconds: float) -> None:
        """Count what was read, and how long the work with it took; pause beyond a budget."""
        self._read_size = quotas.next_read(self._read_size, num_bytes, seconds)
        now = self._loop.time()
        pause = self._budget.spend(num_bytes, num_frames, now)
        self._speakers.heard(self, now)
        if self._speakers.has_other(now):
            pause = max(pause, self._budget.spend_share(seconds, now))
        if pause and not self._pause and not self._finished:
            self._pause = self._loop.call_later(pause, self._resume)
            self._read_or_wait()

    def _resume(self) -> None:
        self._pause = None
        self._read_or_wait()

    def _finish_reading(self) -> None:
        self._finished = True
        self._share.give(self)
        if self._pause:
            self._pause.cancel()
            self._pause = None
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self._sock.fileno() < 0:
            return
        is_held = self._held and not self._unfinished
        if self._finished or is_held or self._pause or self._waits_for_share:
            self._loop.remove_reader(self._sock)
        else:
            self._loop.add_reader(self._sock, self._readable)
