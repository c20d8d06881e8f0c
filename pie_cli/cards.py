"""The card of a running engine: who serves a folder, and whether it still lives."""

import json
import os
from dataclasses import asdict, dataclass

from ipc.codec import PROTOCOL_VERSION
from pie_cli.settings import EngineFolder


@dataclass(frozen=True)
class Card:
    """Written by the engine, read by its clients."""

    pid: int
    start_time: int
    model: str
    log: str
    protocol: int

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.start_time


def start_time(pid: int) -> int | None:
    """When a process started, in the kernel's ticks: with the pid it names one process for ever."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def write(folder: EngineFolder, model: str, log: str) -> None:
    """From here on clients may connect to this process."""
    pid = os.getpid()
    card = Card(pid, start_time(pid) or 0, model, log, PROTOCOL_VERSION)
    part = folder.path / "engine.json.part"
    part.write_text(json.dumps(asdict(card)) + "\n", encoding="utf-8")
    part.replace(folder.card)


def read(folder: EngineFolder) -> Card | None:
    """The card of an engine that lives; None when there is none, or it was killed."""
    try:
        card = Card(**json.loads(folder.card.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return card if card.alive else None
