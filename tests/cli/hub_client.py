"""A client of a test's engine that speaks to the hub itself, and keeps what it hears."""

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from pie_cli import cards
from pie_cli.connection import LocalConnection
from pie_cli.settings import EngineFolder
from tests.cli.conftest import SECONDS, Engine

M = TypeVar("M")


class HubClient:
    """One connection. Shows what it hears unless told not to."""

    def __init__(self, engine: Engine, user: str = "me") -> None:
        (folder,) = engine.home.glob("run/*/engine.json")
        folder = EngineFolder(folder.parent)
        self.connection = LocalConnection(folder, cards.read(folder))
        self.heard: list[Any] = []  # not waited for yet
        self.shows = True
        self._requests = 0
        self.say(c.Hello(PROTOCOL_VERSION, os.getpid(), user))
        self.wait(c.Welcome)

    def say(self, message: c.FromClient) -> None:
        self.connection.send(message)

    def request(self) -> int:
        self._requests += 1
        return self._requests

    def run(self, source: str, input: str = "{}", **fields: Any) -> str:
        """Asks for a launch; the process's id once it is launched."""
        request = self.ask(source, input, **fields)
        launched = self.wait(c.Launched | c.Refused, lambda message: message.request == request)
        assert isinstance(launched, c.Launched), launched
        return launched.process

    def ask(self, source: str, input: str = "{}", **fields: Any) -> int:
        request = self.request()
        files = fields.pop("files", {})
        self.say(c.Run(request, "app.py", source, {}, input, files, **fields))
        return request

    def send(self, process: str, text: str, is_json: bool = False) -> str:
        """The outcome."""
        request = self.request()
        self.say(c.Message(process, is_json, text, request))
        return self.wait(c.Answered, lambda message: message.request == request).outcome

    def attach(self, process: str, past: bool = True) -> c.Attached:
        request = self.request()
        self.say(c.Attach(request, process, past))
        return self.wait(c.Attached, lambda message: message.request == request)

    def transfer(self, parts: list[c.FilePart]) -> str:
        """The outcome."""
        for part in parts:
            self.say(part)
        return self.wait(c.Answered, lambda message: message.request == parts[0].request).outcome

    def end_of(self, process: str) -> c.Returned | c.Error:
        return self.wait(c.Returned | c.Error, lambda message: message.process == process)

    def value_of(self, process: str) -> str:
        """What it returns, as JSON."""
        end = self.end_of(process)
        assert isinstance(end, c.Returned), end
        return end.value

    def texts(self, process: str) -> list[str]:
        """Of the messages and prints that were heard and not waited for."""
        kinds = c.Sent | c.Printed
        return [x.text for x in self.heard if isinstance(x, kinds) and x.process == process]

    def wait(self, kind: type[M], fits: Callable[[M], bool] = lambda message: True) -> M:
        """The first message of a kind that fits, heard or to be heard; others are kept."""
        deadline = time.monotonic() + SECONDS
        seen = 0
        while True:
            for i in range(seen, len(self.heard)):
                if isinstance(self.heard[i], kind) and fits(self.heard[i]):
                    return self.heard.pop(i)
            seen = len(self.heard)
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind} among {self.heard[-20:]}"
            self.connection.wait(left)
            while (message := self.connection.receive()) is not None:
                self.heard.append(message)
                self._show(message)
                assert not isinstance(message, c.EngineFailed), message

    def _show(self, message: Any) -> None:
        if self.shows and isinstance(message, c.Sent | c.Printed | c.Stored):
            text = message.path if isinstance(message, c.Stored) else message.text
            self.say(c.Shown(message.process, c.weight(text)))

    def rows(self) -> dict[str, c.ProcessRow]:
        self.say(c.List())
        return {row.id: row for row in self.wait(c.Processes).rows}

    def close(self) -> None:
        self.connection.close()


def parts_of(request: int, process: str, data: bytes) -> list[c.FilePart]:
    digest = hashlib.sha256(data).digest()
    pieces = [data[i : i + c.FILE_PART] for i in range(0, len(data), c.FILE_PART)] or [b""]
    return [
        c.FilePart(request, process, len(data), piece, digest if i == len(pieces) - 1 else b"")
        for i, piece in enumerate(pieces)
    ]
