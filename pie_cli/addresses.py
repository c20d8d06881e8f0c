"""Addresses of engines on a network: `tcp://HOST:PORT`. Looks no name up to listen at one."""

import ipaddress
import re
import socket
from dataclasses import dataclass

from pie_cli.usage import UsageError

BACKLOG = 128
TRY_SECONDS = 2.0  # in which one of several addresses must answer
EXAMPLE = "like `tcp://127.0.0.1:7410`"
_ADDRESS = re.compile(r"tcp://(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})")
_NAMES = {"*": "0.0.0.0", "localhost": "127.0.0.1"}


@dataclass(frozen=True)
class Listener:
    """A socket that listens. `address`: with the port that it has."""

    address: str
    descriptor: int
    is_open: bool  # other machines reach it


def split(text: str) -> tuple[str, int]:
    """(host, port). Raises ValueError saying what is wrong."""
    match = _ADDRESS.fullmatch(text)
    if not match or int(match[3]) > 65535:
        raise ValueError(f"is no address, {EXAMPLE}")
    return match[1] or match[2], int(match[3])


def place(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Where to listen: a number of this machine, and a port. Raises UsageError."""
    try:
        name, port = split(text)
        return ipaddress.ip_address(_NAMES.get(name, name)), port
    except ValueError:
        hint = f"a number of this machine or `*`, and a port: {EXAMPLE}"
        raise UsageError(f"`--listen {text}` is no address to listen at", hint) from None


def listen(text: str) -> Listener:
    """Listen there; port 0 is any. Raises UsageError, and OSError when it cannot be had."""
    host, port = place(text)
    family = socket.AF_INET6 if host.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((str(host), port))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    port = listening.getsockname()[1]
    shown = f"[{host}]" if host.version == 6 else str(host)
    return Listener(f"tcp://{shown}:{port}", listening.detach(), not host.is_loopback)


def resolved(text: str) -> str:
    """The same address with the host's number: of several, the first that answers. `localhost` is
    often one of IPv6 first, where no engine listens. Raises OSError, and ValueError."""
    host, port = split(text)
    found = [(row[0], row[4]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    answering = (each for each in found if len(found) == 1 or _answers(*each))
    family, place = next(answering, found[0])
    return f"tcp://[{place[0]}]:{port}" if family == socket.AF_INET6 else f"tcp://{place[0]}:{port}"


def _answers(family: int, place: tuple) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trying:
            trying.settimeout(TRY_SECONDS)
            trying.connect(place)
    except OSError:  # also where the machine has no such addresses
        return False
    return True
