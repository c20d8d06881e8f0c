"""Messages between the launcher and the zygote: one datagram each on a SEQPACKET socket.

Only numbers: what an inferlet is and what it gets travels on its own socket, which the zygote
passes on unread. A message may carry one descriptor (SCM_RIGHTS), as noted.
"""

import socket

import msgspec

from ipc.codec import make_decoder

MAX_MESSAGE = 4096  # bytes


class Launch(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Launcher to zygote, with the child's end of its socket: start one child."""

    launch_id: int
    address_space: int  # bytes beyond what the zygote itself has mapped at READY
    cpu: int  # seconds
    descriptors: int


class Ready(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Zygote to launcher, once: everything is loaded, launches may come."""


class Spawned(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Zygote to launcher, with a pidfd: the child exists; it may not be confined yet."""

    launch_id: int
    pid: int


class Exited(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Zygote to launcher: the child has ended and was reaped."""

    launch_id: int
    status: int  # exit code, or minus the signal
    cpu: float  # seconds, user and system
    max_rss: int  # bytes
    setup_failed: str | None  # why the confinement failed; nothing of the launch was read then


Report = Ready | Spawned | Exited

_encode = msgspec.msgpack.Encoder().encode
decode_launch = make_decoder(Launch).decode
decode_report = make_decoder(Report).decode


def send(control: socket.socket, message: Launch | Report, *descriptors: int) -> None:
    """Send one message; BlockingIOError when the socket does not block and is full."""
    socket.send_fds(control, [_encode(message)], list(descriptors))


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and its descriptors, which are ours to close; empty at the end."""
    data, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
    return data, descriptors
