"""A peer of the clients' socket that writes its bytes itself: ZMTP without a library's manners."""

import os
import socket
import struct
from pathlib import Path

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def connected(path: Path) -> socket.socket:
    """A connection to a Unix socket, whatever the length of its path."""
    folder = os.open(path.parent, os.O_RDONLY)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(20)
    made.connect(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    return made


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return header(len(body), flags) + body
    return bytes([flags, len(body)]) + body


def header(size: int, flags: int = 0) -> bytes:
    """Of a frame of any claimed size."""
    return struct.pack(">BQ", flags | LONG, size)


def ready(kind: bytes = b"DEALER") -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return frame(body, COMMAND)


class Peer:
    """One connection, after its handshake."""

    def __init__(self, path: Path) -> None:
        self.sock = connected(path)
        self.sock.sendall(GREETING + ready())
        self._read(64)
        self.receive()  # its READY

    def send(self, data: bytes) -> bool:
        """Whether the engine still takes it."""
        try:
            self.sock.sendall(data)
        except (OSError, TimeoutError):
            return False
        return True

    def receive(self) -> tuple[int, bytes]:
        """(flags, body) of the next frame."""
        flags, size = self._read(2)
        if flags & LONG:
            (size,) = struct.unpack(">Q", bytes([size]) + self._read(7))
        return flags, self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise ConnectionError("the engine has cut the connection")
            data += piece
        return data
