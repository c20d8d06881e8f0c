"""Keeps new connections from a socket that listens, though somebody else accepts them.

ZeroMQ accepts whatever comes, and gives up all connections with the socket that listens. So a
filter on that socket drops the packets that would begin one: who comes tries again, in a second and
later.
"""

import ctypes
import socket
import struct
from contextlib import suppress

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_NOTHING = struct.pack("=HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes of any packet


class Gate:
    """Of one listening socket. Those in its queue still come, and connections are not touched."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._program = ctypes.create_string_buffer(_NOTHING, len(_NOTHING))
        self._is_open = True

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._set(_SO_ATTACH_FILTER, struct.pack("@HL", 1, ctypes.addressof(self._program)))

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._set(_SO_DETACH_FILTER, struct.pack("@i", 0))

    def _set(self, option: int, value: bytes) -> None:
        listening = socket.socket(fileno=self._descriptor)
        try:
            with suppress(OSError):  # a kernel without filters: descriptors are limited, too
                listening.setsockopt(socket.SOL_SOCKET, option, value)
        finally:
            listening.detach()
