"""Files for `session.receive_file`: parts become files, files go to waiters in call order."""

from collections.abc import Callable

from inferlet.runtime.outbox import Outbox
from inferlet.runtime.waiting import Mailbox, Refusal
from ipc import messages as m


class FileIntake:
    """Asks the hub for as many files as are waited for, so that none lies here unread."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._files: Mailbox[bytes] = Mailbox()
        self._parts: list[bytes] = []
        self._size = 0
        self._num_asked = 0  # asked for, and not here yet
        self._num_waiting = 0
        self._is_closed = False

    async def next(self, failure: Callable[[], BaseException | None]) -> bytes:
        """The oldest file. `failure`: why none can come, besides that all have come."""
        self._num_waiting += 1
        try:
            while len(self._files.items) + self._num_asked < self._num_waiting:
                if self._is_closed:
                    break
                self._num_asked += 1
                self._outbox.message(m.ReceivingFile())
            return await self._files.next(self._refusal(failure))
        finally:
            self._num_waiting -= 1

    def on_part(self, part: m.FilePart) -> None:
        self._parts.append(part.data)
        self._size += len(part.data)
        if self._size >= part.size:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._size = [], 0
            self._num_asked -= 1
            self._files.add(data)

    def on_closed(self) -> None:
        self._is_closed = True
        self.wake()

    def wake(self) -> None:
        self._files.wake()

    def _refusal(self, failure: Callable[[], BaseException | None]) -> Refusal:
        def refuse(ahead: int) -> BaseException | None:
            if len(self._files.items) > ahead:
                return None
            if error := failure():
                return error
            if self._is_closed:
                return EOFError("the client has closed its end, and all its files were received")
            return None

        return refuse
