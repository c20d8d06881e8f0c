"""An engine that listens, and clients that only know its address and a key."""

import re
import signal
import subprocess
from pathlib import Path

from pie_cli import keys, remote
from pie_cli.remote_connection import RemoteConnection
from tests.cli.conftest import SECONDS, Engine, children, command_line, make_home, wait_until


class ListeningEngine:
    """`pie serve --listen` with keys; `guest` makes commands of another machine."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.here = Engine(make_home(folder / "here"), {})
        for name in names:
            self.add_key(name)
        self.server = self.here.start("serve", "--listen", "tcp://127.0.0.1:0")
        self.ready = self.server.stdout.readline()
        self.address = re.search(r"listens at (tcp://\S+),", self.ready)[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def add_key(self, name: str) -> Path:
        path = self.key(name)
        done = self.here.pie("key", "new", name, "-o", path)
        assert done.returncode == 0, done.stderr
        return path

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def guest(self, name: str, key: Path | None = None) -> Engine:
        """A home of its own, without models."""
        home = self.folder / "elsewhere" / name
        home.mkdir(parents=True, exist_ok=True)
        path = key or self.key(name)
        return Engine(home, {"PIE_ENGINE": self.address, "PIE_KEY": str(path)})

    def connection(self, name: str) -> RemoteConnection:
        """What says to the hub whatever a test likes."""
        there = remote.Remote(self.address, keys.read(self.key(name)))
        connection = RemoteConnection(there)
        connection.greet()
        return connection

    def door(self) -> int:
        """The process id of the door, once there is one."""
        return wait_until(self._doors)[0]

    def _doors(self) -> list[int]:
        found = children(self.server.pid)
        return [pid for pid in found if "engine.door" in command_line(pid)]

    def log(self) -> str:
        return "".join(path.read_text() for path in (self.here.home / "logs").iterdir())

    def end(self) -> tuple[int, str]:
        """The engine's exit code, and what else it said on stderr."""
        self.server.send_signal(signal.SIGINT)
        try:
            _, stderr = self.server.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            raise
        return self.server.returncode, stderr
