"""What the hub and the app say to each other: identity, attached files, the inbox."""

import json
from typing import Any

from inferlet.runtime import handles
from inferlet.runtime.failures import MakeError
from inferlet.runtime.outbox import Outbox
from inferlet.runtime.waiting import Mailbox
from ipc import messages as m


class Conversation:
    """The messages of one process's client, oldest first."""

    def __init__(self, outbox: Outbox, process: str, files: dict[str, bytes]) -> None:
        self.process = process
        self.files = files
        self._outbox = outbox
        self._inbox: Mailbox[m.Inbox] = Mailbox()
        self._is_closed = False
        self._has_asked = False

    def send(self, is_json: bool, text: str) -> None:
        self._outbox.message(m.Send(is_json, text))

    async def receive(self) -> Any:
        if not self._has_asked:
            self._has_asked = True
            self._outbox.message(m.Receiving())
        message = await self._inbox.next(self._refusal)
        return json.loads(message.text) if message.is_json else message.text

    def on_message(self, message: m.Inbox) -> None:
        self._inbox.add(message)

    def on_closed(self) -> None:
        self._is_closed = True
        self.wake()

    def wake(self) -> None:
        """Receivers look again whether anything can come."""
        self._inbox.wake()

    def _refusal(self, ahead: int) -> BaseException | None:
        if len(self._inbox.items) > ahead:
            return None
        failure: MakeError | None = handles.current().failure
        if failure:
            return failure()
        if self._is_closed:
            return EOFError("the client has closed its end, and the inbox is empty")
        return None
