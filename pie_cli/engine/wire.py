"""A connection that ZeroMQ holds, as the kernel sees it: how much has come, and its end.

ZeroMQ tells neither of a message that never ends, nor lets anybody hang up on one peer.
"""

import os
import socket
import struct

_TCP_INFO_SIZE = 192
_RESET = struct.pack("ii", 1, 0)  # struct linger: what closes is reset
_BYTES_RECEIVED = 128  # the place of tcpi_bytes_received


class Wire:
    """Known by its descriptor in this process, as long as that is the same connection."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._peer = None
        if connection := self._connection():
            with connection:
                self._peer = _peer(connection)

    def received(self) -> int:
        """Bytes since it began; 0 when it has ended, or the kernel does not say."""
        connection = self._connection()
        if connection is None:
            return 0
        with connection:
            try:
                facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
                return struct.unpack_from("=Q", facts, _BYTES_RECEIVED)[0]
            except (OSError, struct.error):
                return 0

    def cut(self) -> None:
        """Hang up, so that the other end hears of it at once.

        A mere end would not reach one that waits for room here: ZeroMQ reads what has come before
        it closes, and the kernel then leaves that one waiting for a minute.
        """
        if connection := self._connection():
            with connection:
                try:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended

    def _connection(self) -> socket.socket | None:
        """The connection, of which ZeroMQ's own thread may close its descriptor at any time."""
        try:
            connection = socket.socket(fileno=os.dup(self._descriptor))
        except OSError:
            return None
        peer = _peer(connection)
        if peer is None or self._peer not in (None, peer):
            connection.close()
            return None
        return connection


def _peer(connection: socket.socket) -> tuple | None:
    """Whose end the other one is; None when it is none of a network."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return connection.getpeername()
    except OSError:
        return None
