"""An engine whose parts are killed: its parts by name, and what must hold after each kill."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ipc import client as c
from pie_cli import cards
from pie_cli.engine.launcher import NUM_SPARES
from tests.cli import fault_worker
from tests.cli.conftest import (
    ROOT,
    SECONDS,
    Engine,
    children,
    command_line,
    end_engine,
    inner_number,
    is_gone,
    make_home,
    pid_of_inferlet,
    wait_until,
)  # fmt: skip
from tests.cli.fault_stages import BYSTANDER, HELLO
from tests.cli.hub_client import HubClient

# Messages of apps, and what runs say of parts that are stopped.
_NO_END = ("here ", "xxx", "the run waits: its ", "the engine does not answer: its ")
PR_SET_CHILD_SUBREAPER = 36
MAX_DEATHS = 2  # of worker or zygote that one engine lives through here; it bears one more


@contextmanager
def adopting() -> Iterator[None]:
    """Orphans become children of this process, so that they can be seen."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def descendants(pid: int) -> set[int]:
    """All living processes below `pid`."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        with suppress(OSError):
            for child in children(waiting.pop()):
                if child not in found and not is_gone(child):
                    found.add(child)
                    waiting.append(child)
    return found


class Run:
    """One `pie run` whose output goes to files, so that it never waits for its reader."""

    def __init__(self, engine: Engine, folder: Path, words: tuple, **options) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pie_cli", *map(str, words)], env=engine.environment,
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err, **options,
            )  # fmt: skip

    def inner_pid(self) -> int:
        """What its app calls itself, once it says so."""
        with suppress(AssertionError):
            wait_until(lambda: re.search(r"^here \d+$", self.err.read_text(), re.MULTILINE))
        found = re.search(r"^here (\d+)$", self.err.read_text(), re.MULTILINE)
        assert found, self.err.read_text()
        return int(found[1])

    def end(self) -> tuple[int, str, str]:
        """(exit code, stdout, what stderr says besides messages)."""
        status = self.process.wait(SECONDS)
        lines = self.err.read_text().splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith(_NO_END))
        return status, self.out.read_text(), said


class FaultyEngine:
    """An engine that is started anew when it was killed, or has seen too many deaths."""

    def __init__(self, home: Path, worker: str = "tests.cli.fault_worker") -> None:
        self.engine = Engine(make_home(home), {"PIE_WORKER": worker})
        self._words = {"worker": worker, "zygote": "--control"}  # of their command lines
        self.home = home
        self.runs: list[Run] = []
        self.others: list[subprocess.Popen] = []
        self._deaths = 0
        self._hub: int | None = None
        self._num_points = 0

    # ---- before the kill

    def ready(self) -> None:
        """A running engine that bears the loss of a part."""
        self._num_points += 1
        card = self.engine.card()
        if card is None or is_gone(card["pid"]) or self._deaths >= MAX_DEATHS:
            self.stop()
            self.hello()
            self.wait_until_idle()
            card = self.engine.card()
        if card["pid"] != self._hub:
            self._hub, self._deaths = card["pid"], 0

    def hello(self) -> None:
        done = self.engine.run(HELLO, "--no-stdin")
        assert (done.returncode, done.stdout) == (0, '"hello"\n'), done.stderr

    def run(self, source: str, *words: object, name: str | None = "victim", **options) -> Run:
        """`pie run` of a source text, as a process of that name."""
        app = self.engine.write(source, f"{name or 'many'}.py")
        named = ("--name", name) if name else ()
        words = ("run", app, "--no-stdin", "--client", "me", *named, *words)
        return self.run_words(*words, **options)

    def run_words(self, *words: object, **options) -> Run:
        folder = self.home / "outputs" / f"{self._num_points}-{len(self.runs)}"
        self.runs.append(Run(self.engine, folder, words, **options))
        return self.runs[-1]

    def pid_of(self, part: str, run: Run | None = None) -> int:
        """The process of a part, once there is one."""
        match part:
            case "client":
                return run.process.pid
            case "hub":
                return wait_until(self.engine.card)["pid"]
            case "worker" | "zygote":
                return wait_until(lambda: self._engine_pid(part))
            case "inferlet":
                return self.inferlet(run.inner_pid())
            case "spare":
                own = self.inferlet(run.inner_pid())
                return [pid for pid in self.spares() if pid != own][-1]
            case "first":
                return next(pid for pid in children(self.pid_of("zygote")) if not is_forked(pid))
        raise LookupError(part)

    def inferlet(self, inner: int) -> int:
        """The process that calls itself `inner`."""
        return pid_of_inferlet(self.pid_of("zygote"), inner)

    def _engine_pid(self, part: str) -> int | None:
        word = self._words[part]
        with suppress(StopIteration, OSError, TypeError):
            hub = self.engine.card()["pid"]
            return next(pid for pid in children(hub) if word in command_line(pid))
        return None

    def spares(self) -> list[int]:
        """Children of the zygote that are inferlets, or wait to become one; oldest first."""
        zygote = self._engine_pid("zygote")
        forked = [pid for pid in children(zygote) if is_forked(pid)] if zygote else []
        return sorted(forked, key=lambda pid: (cards.start_time(pid) or 0, pid))  # pids wrap around

    def kill(self, part: str, pid: int, number: int = signal.SIGKILL) -> None:
        self._deaths += part in ("worker", "zygote", "first")
        os.kill(pid, number)

    def count_death(self) -> None:
        """Of a worker or zygote that ended without `kill`."""
        self._deaths += 1

    # ---- after it

    def check_nothing_is_left(self, *, hub: int, survives: bool, before: set[int]) -> None:
        """`before`: the processes of the engine `hub` at the kill. `survives`: it goes on."""
        self.hello()
        assert (self.engine.card()["pid"] == hub) == survives
        if not survives:
            self.wait_until_gone(before | {hub})
        self.wait_until_idle()
        wait_until(lambda: len(self.spares()) <= NUM_SPARES)
        wait_until(lambda: not self._orphans())
        logs = "".join(path.read_text() for path in self.home.glob("logs/*.log"))
        assert "Traceback" not in logs, logs
        assert not list(self.home.glob("files/.*")), "a file that is not complete"

    def wait_until_idle(self) -> None:
        """Nothing lives, or is leaving, or is held."""
        with closing(HubClient(self.engine)) as client:
            wait_until(lambda: not client.rows())
            wait_until(lambda: self._holds_nothing(client))

    def wait_until_gone(self, pids: set[int]) -> None:
        """Fails with what those are that stay."""
        with suppress(AssertionError):
            wait_until(lambda: self._reap() or all(map(is_gone, pids)))
        left = {pid: command_line(pid)[-80:] for pid in pids if not is_gone(pid)}
        assert not left, left

    def _reap(self) -> None:
        """As init does it for orphans; else the first process of a namespace waits for us."""
        for pid in set(children(os.getpid())) - self._own_children():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _own_children(self) -> set[int]:
        return {run.process.pid for run in self.runs} | {other.pid for other in self.others}

    def _holds_nothing(self, client: HubClient) -> bool:
        client.say(c.List())
        stats = client.wait(c.Processes).worker
        client.say(c.AskFacts(1))
        facts = client.wait(c.Facts)
        is_idle = facts.live == facts.queued == 0
        return is_idle and (stats is None or stats.pages_free == stats.pages_total)

    def _orphans(self) -> set[int]:
        card = self.engine.card()
        engine = {card["pid"], *descendants(card["pid"])} if card else set()
        self._reap()
        own = {pid for pid in children(os.getpid()) if not is_gone(pid)} - self._own_children()
        return {pid for pid in own - engine if b"PIE_HOME=" in _environment(pid)
                or "pie_cli" in command_line(pid)}  # fmt: skip

    def end_runs(self) -> None:
        """Whatever a failed test has left."""
        for process in [*(run.process for run in self.runs), *self.others]:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.runs.clear()
        self.others.clear()

    def stop(self) -> None:
        self.end_runs()
        (self.home / fault_worker.HOLD).unlink(missing_ok=True)
        card = self.engine.card()
        if card and not is_gone(card["pid"]):
            end_engine(self.engine)
            wait_until(lambda: is_gone(card["pid"]))


def is_forked(pid: int) -> bool:
    """Whether a child of the zygote is an inferlet, not the first process of the namespace."""
    return not is_gone(pid) and inner_number(pid) not in (None, 1)


def _environment(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


class Bystander:
    """Another client's process: what is said to it before and after a kill arrives."""

    def __init__(self, engine: Engine) -> None:
        self.client = HubClient(engine)
        self.process = self.client.run(BYSTANDER, name="bystander")
        self.client.wait(c.Sent)
        for text in "abc":
            self.client.say(c.Message(self.process, False, text))

    def check(self) -> None:
        for text in "def":
            assert self.client.send(self.process, text) == c.ACCEPTED
        assert self.client.send(self.process, "end") == c.ACCEPTED
        value = self.client.value_of(self.process)
        assert value == '[["a", "b", "c", "d", "e", "f"], true]', value

    def check_lost(self) -> None:
        """Its engine was killed: the connection says so."""
        wait_until(self.client.connection.engine_ended)

    def tell(self, process: str, text: str) -> str:
        return self.client.send(process, text)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stop(pid: int) -> None:
    """SIGSTOP, and wait until it stands."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + SECONDS
    while not is_stopped(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def assert_ends(run: Run, ending: tuple[int, str], out: str | None = None) -> None:
    status, stdout, said = run.end()
    words = ending[1].replace("{signal}", "KILL")
    assert status == ending[0] and re.fullmatch(words, said), (status, said)
    assert stdout == (out or ""), stdout
