"""An arena: zygotes whose children run `attacks.run`, and things worth attacking."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pie_cli.engine.launcher import Exit, Launched, Launcher, Limits
from pie_cli.sandbox import policy, selftest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120.0  # seconds; machines may be slow, and busy with other things
BEST_TIER = selftest.probe().name
TIERS = [policy.FULL, policy.REDUCED] if BEST_TIER == policy.FULL else [policy.REDUCED]
SMALL = Limits(memory=64 << 20, cpu=20, descriptors=64)


@dataclass
class Outcome:
    """What one child did, and how it ended."""

    outcome: str | None  # None: it ended without an answer
    result: object
    exit: Exit


class Arena:
    """Runs functions of `attacks` in children of one zygote."""

    def __init__(
        self,
        tier: str = BEST_TIER,
        entry: str = "tests.sandbox.attacks:run",
        num_spares: int = 0,
    ) -> None:
        self.tier = tier
        self.loop = asyncio.new_event_loop()
        self.deaths = 0
        self.launcher = Launcher(
            tier, None, None, entry=entry, on_death=self._died, num_spares=num_spares
        )
        self.run(self.launcher.start())

    def _died(self) -> None:
        self.deaths += 1

    def run(self, task):
        return self.loop.run_until_complete(asyncio.wait_for(task, TIMEOUT))

    def close(self) -> None:
        self.run(self.launcher.close())
        self.loop.close()

    async def start(self, name: str, arguments: dict | None = None, limits: Limits = SMALL):
        launched = await self.launcher.launch(limits)
        request = _request(name, {**(arguments or {}), "tier": self.tier})
        with contextlib.suppress(ConnectionError):  # it has ended: how, says its exit
            await self.loop.sock_sendall(launched.sock, request.encode())
        return launched

    async def finish(self, launched: Launched) -> Outcome:
        answer = b""
        with launched.sock:
            while not answer.endswith(b"\n"):
                try:
                    part = await self.loop.sock_recv(launched.sock, 1 << 16)
                except ConnectionResetError:  # it ended without reading
                    break
                if not part:
                    break
                answer += part
        end = await launched.exited
        read = json.loads(answer) if answer else {"outcome": None, "result": None}
        return Outcome(read["outcome"], read["result"], end)

    async def attack(self, name: str, arguments: dict | None = None, limits: Limits = SMALL):
        return await self.finish(await self.start(name, arguments, limits))

    def outcome(self, name: str, arguments: dict | None = None, limits: Limits = SMALL) -> Outcome:
        return self.run(self.attack(name, arguments, limits))


@pytest.fixture(scope="session")
def confined() -> Iterator[Arena]:
    """Shared by tests that do not harm the zygote."""
    arena = Arena()
    yield arena
    arena.close()


@pytest.fixture(scope="session", params=TIERS)
def each_tier(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """One after the other, the tiers that this machine gives."""
    arena = Arena(request.param)
    yield arena
    arena.close()


@pytest.fixture(scope="module", params=TIERS)
def confined_programs(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Children run `programs.run`."""
    arena = Arena(request.param, entry="tests.sandbox.programs:run")
    yield arena
    arena.close()


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A zygote of its own."""
    arena = Arena()
    yield arena
    arena.close()


@pytest.fixture(scope="session")
def victim() -> Iterator[int]:
    """A process of the same user."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def targets(tmp_path: Path, victim: int) -> Iterator[dict]:
    """A world-writable folder, listening sockets and a victim process."""
    tmp_path.chmod(0o777)
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "private").touch(0o600)
    (tmp_path / "shortcut").symlink_to("/etc/passwd")
    # Socket names are at most 108 bytes long, so they are bound relative to the folder.
    here = os.open(".", os.O_RDONLY)
    os.chdir(tmp_path)
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as stream:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            stream.bind("stream")
            stream.listen()
            datagram.bind("datagram")
            os.fchdir(here)
            os.close(here)
            yield {
                "folder": str(tmp_path),
                "tcp_port": tcp.getsockname()[1],
                "victim": victim,
                "root": str(ROOT),
                "site_packages": sysconfig.get_path("purelib"),
            }


class Open:
    """Runs attacks in new processes without any sandbox."""

    def __init__(self) -> None:
        start = "import sys; sys.path.insert(0, sys.argv[1]); from tests.sandbox import attacks; "
        command = [sys.executable, "-I", "-c", start + "attacks.serve()", str(ROOT)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._known: dict[str, str] = {}

    def outcome(self, name: str, arguments: dict | None = None) -> str:
        """`escaped`, or how it failed. Tried once only, whatever the number of tiers."""
        if name in self._known:
            return self._known[name]
        self._process.stdin.write(_request(name, arguments or {}))
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        escaped = answer["outcome"] == "escaped"
        self._known[name] = "escaped" if escaped else str(answer)
        return self._known[name]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def in_the_open() -> Iterator[Open]:
    control = Open()
    yield control
    control.close()


def _request(name: str, arguments: dict) -> str:
    return json.dumps({"name": name, "arguments": arguments}) + "\n"
