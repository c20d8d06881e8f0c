"""A client with a key that writes its frames itself: CurveZMQ (RFC 26) without a library's manners.

The cryptography is libsodium's, of the copy that pyzmq brings.
"""

import ctypes
import functools
import os
import socket
import struct
from importlib import metadata

from zmq.utils import z85

from pie_cli.keys import ClientKey
from tests.cli.zmtp_peer import COMMAND, frame

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
MORE = 1


@functools.cache
def _sodium() -> ctypes.CDLL:
    files = metadata.files("pyzmq") or []
    return ctypes.CDLL(str(next(f.locate() for f in files if f.name.startswith("libsodium"))))


def box(text: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    made = ctypes.create_string_buffer(len(text) + 16)
    size = ctypes.c_ulonglong(len(text))
    assert _sodium().crypto_box_easy(made, text, size, nonce, public, secret) == 0
    return made.raw


def opened(data: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    made = ctypes.create_string_buffer(len(data) - 16)
    size = ctypes.c_ulonglong(len(data))
    assert _sodium().crypto_box_open_easy(made, data, size, nonce, public, secret) == 0
    return made.raw


class CurvePeer:
    """One connection, after its handshake."""

    def __init__(self, port: int, key: ClientKey) -> None:
        server, public, secret = (z85.decode(x) for x in (key.server, key.public, key.secret))
        own_public, self._secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
        _sodium().crypto_box_keypair(own_public, self._secret)
        self._public, self._secret = own_public.raw, self._secret.raw
        self._count = 0
        self.sock = socket.create_connection(("127.0.0.1", port), 20)
        self.sock.sendall(GREETING)
        self._read(64)
        short, hello = self._box(bytes(64), b"CurveZMQHELLO---", server)
        self._command(b"\x05HELLO\x01\x00" + bytes(72) + self._public + short + hello)
        welcome = self._frame()[8:]
        text = opened(welcome[16:], b"WELCOME-" + welcome[:16], server, self._secret)
        self._server, cookie = text[:32], text[32:]
        nonce = os.urandom(16)
        vouch = nonce + box(self._public + server, b"VOUCH---" + nonce, self._server, secret)
        facts = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        short, body = self._box(public + vouch + facts, b"CurveZMQINITIATE", self._server)
        self._command(b"\x08INITIATE" + cookie + short + body)
        assert self._frame().startswith(b"\x05READY")

    def message(self, body: bytes, flags: int = 0) -> bytes:
        """The bytes of one frame."""
        short, data = self._box(bytes([flags]) + body, b"CurveZMQMESSAGEC", self._server)
        return frame(b"\x07MESSAGE" + short + data)

    def _box(self, text: bytes, prefix: bytes, public: bytes) -> tuple[bytes, bytes]:
        self._count += 1
        short = struct.pack(">Q", self._count)
        return short, box(text, prefix + short, public, self._secret)

    def _command(self, body: bytes) -> None:
        self.sock.sendall(frame(body, COMMAND))

    def _frame(self) -> bytes:
        flags, size = self._read(2)
        if flags & 2:
            (size,) = struct.unpack(">Q", bytes([size]) + self._read(7))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            assert more, "the door has hung up"
            data += more
        return data
