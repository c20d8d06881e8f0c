"""What the hub and the app say to each other: identity, messages, files."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from inferlet.errors import InferletError
from inferlet.runtime import handles
from inferlet.runtime.failures import MakeError
from inferlet.runtime.file_intake import FileIntake
from inferlet.runtime.outbox import Outbox
from inferlet.runtime.waiting import Mailbox
from ipc import messages as m

Exchange = Callable[[], None]  # waits until the hub's answer has come, and hands it on


class Conversation:
    """The messages of one process, oldest first."""

    def __init__(
        self,
        outbox: Outbox,
        process: str,
        files: dict[str, bytes],
        exchange: Exchange = lambda: None,
    ) -> None:
        """`exchange` is called when an answer has not come by itself."""
        self.process = process
        self.files = files
        self._outbox = outbox
        self._exchange = exchange
        self._inbox: Mailbox[m.Inbox] = Mailbox()
        self._intake = FileIntake(outbox)
        self._outcome: str | None = None  # of the last `send_to`
        self._is_closed = False
        self._has_asked = False

    # ---- out

    def send(self, is_json: bool, text: str) -> None:
        self._outbox.message(m.Send(is_json, text))

    def send_to(self, process: str, is_json: bool, text: str) -> str:
        """The outcome; empty when the message is in the other's inbox."""
        self._outcome = None
        self._outbox.message(m.SendTo(process, is_json, text))
        if self._outcome is None:
            self._exchange()
        if self._outcome is None:
            raise InferletError("the engine is gone: nobody answers")
        return self._outcome

    def on_sent_to(self, outcome: str) -> None:
        self._outcome = outcome

    def send_file(self, data: memoryview) -> None:
        """`data` is of bytes, and contiguous. Waits while too much of it is unsent."""
        size, digest = len(data), hashlib.sha256(data).digest()
        for start in range(0, max(size, 1), m.FILE_PART):
            part = bytes(data[start : start + m.FILE_PART])
            is_last = start + m.FILE_PART >= size
            self._outbox.message(m.SendFilePart(size, part, digest if is_last else b""))

    # ---- in

    async def receive(self) -> Any:
        if not self._has_asked:
            self._has_asked = True
            self._outbox.message(m.Receiving())
        message = await self._inbox.next(self._refusal)
        self._outbox.received()
        return json.loads(message.text) if message.is_json else message.text

    async def receive_file(self) -> bytes:
        return await self._intake.next(self._failure)

    def on_message(self, message: m.Inbox) -> None:
        self._inbox.add(message)

    def on_closed(self) -> None:
        self._is_closed = True
        self._inbox.wake()

    def on_file_part(self, part: m.FilePart) -> None:
        self._intake.on_part(part)

    def on_files_closed(self) -> None:
        self._intake.on_closed()

    def wake(self) -> None:
        """Receivers look again whether anything can come."""
        self._inbox.wake()
        self._intake.wake()

    def _failure(self) -> BaseException | None:
        failure: MakeError | None = handles.current().failure
        return failure() if failure else None

    def _refusal(self, ahead: int) -> BaseException | None:
        if len(self._inbox.items) > ahead:
            return None
        if failure := self._failure():
            return failure
        if self._is_closed:
            return EOFError("the client has closed its end, and the inbox is empty")
        return None
