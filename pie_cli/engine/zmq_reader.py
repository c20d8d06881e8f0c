"""Reads a ZeroMQ socket from the event loop. Knows the trap, nothing of the messages.

The socket's descriptor is edge-triggered: it tells of a message once, and a send may swallow that.
So everything is drained after each event, and after each send; the rest of the loop has its turn
between.
"""

import asyncio
from collections.abc import Callable


AT_ONCE = 128  # messages in one turn of the loop


class ZmqReader:
    """Calls `receive` until it returns False, whenever messages may have come."""

    def __init__(self, descriptor: int, receive: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._receive = receive
        self._scheduled = False
        self._loop.add_reader(descriptor, self._drain)
        self.check()

    def check(self) -> None:
        """To be called after each send: drains in the next turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._receive = lambda: False

    def _drain(self) -> None:
        self._scheduled = False
        more = True  # also after a fault: what is left is told of no more
        try:
            for _ in range(AT_ONCE):
                if not self._receive():
                    more = False
                    return
        finally:
            if more:
                self.check()
