"""Real processes, sandbox included, around a worker without a model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models

if TYPE_CHECKING:
    from tests.cli.faults import FaultyEngine
    from tests.cli.hub_client import HubClient

ROOT = Path(__file__).resolve().parents[2]
MODEL = "fake"
SECONDS = 120.0  # for whatever is waited for: machines may be slow, and busy with other things


@dataclass
class Engine:
    """One PIE_HOME, and the commands that are run with it."""

    home: Path
    extra: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PIE_", "XDG_RUNTIME"))},
            "PIE_HOME": str(self.home), "PIE_WORKER": "tests.cli.fake_worker", "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(self.home / "no-hub"), **self.extra,
        }  # fmt: skip

    def start(self, *words: object, **options) -> subprocess.Popen:
        command = [sys.executable, "-m", "pie_cli", *map(str, words)]
        options = {"stdin": subprocess.DEVNULL} | options
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, **options
        )

    def pie(self, *words: object, stdin: str | None = None) -> subprocess.CompletedProcess:
        options = {} if stdin is None else {"stdin": subprocess.PIPE}
        process = self.start(*words, **options)
        stdout, stderr = process.communicate(stdin, timeout=SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def run(self, app: str, *words: object, **options) -> subprocess.CompletedProcess:
        """`pie run` of a source text."""
        return self.pie("run", self.write(app), *words, **options)

    def write(self, source: str, name: str = "app.py") -> Path:
        folder = self.home / "apps"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(source)
        return path

    def card(self) -> dict | None:
        for path in self.home.glob("run/*/engine.json"):
            with suppress(FileNotFoundError):  # it leaves just now
                return json.loads(path.read_text())
        return None

    def processes(self) -> list[dict]:
        return json.loads(self.pie("ps", "--json").stdout)

    def wait_for_process(self) -> dict:
        """The facts of a process that runs, once there is one."""
        return wait_until(
            lambda: next((row for row in self.processes() if row["state"] == "running"), None)
        )

    def engine_pid(self, part: str) -> int:
        """The process id of a part of the engine: `worker` or `zygote`. StopIteration: none now."""
        word = {"worker": "fake_worker", "zygote": "--control"}[part]
        return next(pid for pid in children(self.card()["pid"]) if word in command_line(pid))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that ends just now
            found += map(int, path.read_text().split())
    return found


def pid_of_inferlet(zygote: int, inner: int) -> int:
    """The number of an inferlet whose own namespace numbers it `inner`, among the spare ones."""
    for pid in children(zygote):
        if inner_number(pid) == inner:
            return pid
    raise AssertionError(f"no child of {zygote} is {inner} to itself")


def inner_number(pid: int) -> int | None:
    """What a process is in its own namespace; None when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])
    except (OSError, IndexError):
        return None


def command_line(pid: int) -> str:
    """Empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(condition: Callable[[], object]) -> object:
    """The condition's first true value."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
    return value


def read_until(stream: IO[str], words: str) -> str:
    """The first line with these words."""
    for line in stream:
        if words in line:
            return line
    raise AssertionError(f"{words!r} did not come")


def make_home(home: Path) -> Path:
    """A store with one model, which holds what the zygote and the store read of it."""
    folder = home / "models" / MODEL
    folder.mkdir(parents=True)
    config = {"architectures": ["FakeForCausalLM"], "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(4)
    (folder / "model.safetensors").write_bytes(weights)
    Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")).save(
        str(folder / "tokenizer.json")
    )
    (home / "models" / ".default").write_text(MODEL + "\n")
    return home


def end_engine(engine: Engine) -> None:
    card = engine.card()
    engine.pie("stop")
    if card and not is_gone(card["pid"]):
        os.kill(card["pid"], signal.SIGKILL)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One running engine for all tests that leave it as it was."""
    engine = Engine(make_home(tmp_path_factory.mktemp("pie")), {})
    started = engine.run("def main(): pass")
    assert started.returncode == 0, started.stderr
    yield engine
    end_engine(engine)


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine that a test may end."""
    engine = Engine(make_home(tmp_path), {})
    yield engine
    end_engine(engine)


@pytest.fixture
def connect(engine: Engine) -> Iterator[Callable[..., "HubClient"]]:
    """Makes clients of the hub, and closes them; what they launched is ended."""
    from ipc import client as c
    from tests.cli.hub_client import HubClient

    if engine.card() is None:  # an earlier test has stopped it
        assert engine.run("def main(): pass").returncode == 0
    made: list[HubClient] = []

    def make(user: str = "me") -> HubClient:
        made.append(HubClient(engine, user))
        return made[-1]

    yield make
    for client in made:
        client.say(c.Kill(tuple(client.rows())))
        client.wait(c.Killed)
        wait_until(lambda client=client: not client.rows())  # else the next test meets them
        client.close()


@pytest.fixture
def client(connect: Callable[..., "HubClient"]) -> "HubClient":
    return connect()


@pytest.fixture(scope="module")
def faulty_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator["FaultyEngine"]:
    from tests.cli import faults  # it uses this module

    engine = faults.FaultyEngine(tmp_path_factory.mktemp("pie"))
    with faults.adopting():
        yield engine
        engine.stop()


@pytest.fixture
def faulty(faulty_engine: "FaultyEngine") -> Iterator["FaultyEngine"]:
    """An engine whose parts may be killed; started anew when it was, or has seen too many deaths."""
    faulty_engine.ready()
    yield faulty_engine
    faulty_engine.end_runs()


@pytest.fixture
def app(tmp_path: Path) -> Callable[..., str]:
    """Writes an app; its path."""

    def write(source: str, name: str = "app.py") -> str:
        (tmp_path / name).write_text(source)
        return str(tmp_path / name)

    return write
