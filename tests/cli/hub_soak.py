"""Random requests of several clients, hostile apps, and parts that are killed: nothing is left.

python -m tests.cli.hub_soak [--seed N] [--seconds S]
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ipc import client as c
from tests.cli.conftest import SECONDS, Engine, end_engine, make_home, wait_until
from tests.cli.hub_apps import HOSTILE, RELAY, SEND_FILES, TALK
from tests.cli.hub_client import HubClient, parts_of

SLEEP = "async def main(i):\n  import asyncio\n  await asyncio.sleep(99)"
USES_WORKER = """
from inferlet import *
async def main(input):
    ws, pipe = WorkingSet(), Pipeline()
    ws.reserve(4)
    await session.receive()
"""
GETS_FILE = """
from inferlet import session
async def main(input):
    return len(await session.receive_file())
"""
SPAM = """
from inferlet import session
async def main(input):
    for i in range(300):
        session.send("x" * 20_000)
        print("y" * 1000)
"""
APPS = (
    TALK, SLEEP, USES_WORKER, GETS_FILE, SPAM, SEND_FILES, "x x", "def main(i): 1 / 0",
    "def main(i): x = 'y' * (3 << 30)", "import ctypes\ndef main(i): ctypes.string_at(0)",
    HOSTILE.replace("MESSAGES", "[m.Received(3)]"),
)  # fmt: skip
KILLS = 3  # of each part; one more ends the engine


class Soak:
    """An engine and some clients of two kinds."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rand = engine, random.Random(seed)
        self.pid = engine.card()["pid"]
        self.clients = [self._client() for _ in range(4)]
        self.ids = ["nobody"]
        self.kills = {"worker": 0, "zygote": 0}

    def _client(self) -> HubClient:
        return HubClient(self.engine, "you" if self.rand.random() < 0.2 else "me")

    def step(self) -> None:
        client, target = self.rand.choice(self.clients), self.rand.choice(self.ids[-12:])
        actions = (self._launch, self._relay, self._say, self._file, self._leave, self._kill_part)
        (action,) = self.rand.choices(actions, weights=(25, 5, 55, 8, 2, 0.5))
        action(client, target)
        for each in self.clients:
            self._hear(each)
        time.sleep(self.rand.random() * 0.02)

    def _launch(self, client: HubClient, _: str) -> None:
        rand = self.rand
        client.ask(
            rand.choice(APPS), detach=rand.random() < 0.3, priority=rand.randint(-1, 1),
            name=rand.choice([None, None, f"n{rand.randint(0, 3)}"]),
            timeout=rand.choice([None, 0.2]), files_folder=str(self.engine.home / "out"),
            limits=c.Asked(memory=rand.choice([None, 64 << 20]), inbox=rand.choice([None, 5])),
        )  # fmt: skip

    def _relay(self, client: HubClient, target: str) -> None:
        client.ask(RELAY, json.dumps({"to": target, "count": self.rand.randint(1, 200)}))

    def _say(self, client: HubClient, target: str) -> None:
        flag, rand = self.rand.random() < 0.5, self.rand
        messages = (
            c.Message(target, flag, '"x"', rand.choice([0, 99])), c.Message(target, False, "end"),
            c.Attach(1, target, flag), c.Detach(target), c.ReadLog(1, target, flag),
            c.Kill((target,), flag), c.ReadTrace(1, target), c.List(), c.AskFacts(1),
            c.CloseInput(target), c.Shown(target, 1000),
        )  # fmt: skip
        client.say(rand.choice(messages))

    def _file(self, client: HubClient, target: str) -> None:
        data = b"z" * self.rand.choice([0, 10, 600_000])
        parts = parts_of(self.rand.randint(1, 5), target, data)
        for part in parts[: self.rand.randint(1, len(parts))]:
            client.say(part)

    def _leave(self, client: HubClient, _: str) -> None:
        self.clients.remove(client)
        client.close()
        self.clients.append(self._client())

    def _kill_part(self, _: HubClient, __: str) -> None:
        part = self.rand.choice(list(self.kills))
        if self.kills[part] < KILLS:
            self.kills[part] += 1
            with suppress(StopIteration, ProcessLookupError):  # none now: it starts anew
                os.kill(self.engine.engine_pid(part), signal.SIGKILL)

    def _hear(self, client: HubClient) -> None:
        while (message := client.connection.receive()) is not None:
            client._show(message)
            assert not isinstance(message, c.EngineFailed), message
            if isinstance(message, c.Launched):
                self.ids.append(message.process)

    def end(self) -> c.Facts:
        """The engine's facts once all processes have ended, and clients that left are forgotten.

        Fails when some do not end.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            for each in self.clients:
                self._hear(each)
                each.heard.clear()
            asking = self.clients[0]
            rows = asking.rows()
            asking.say(c.Kill(tuple(rows)))
            asking.say(c.AskFacts(2))
            facts = asking.wait(c.Facts)
            is_quiet = not rows and facts.live == facts.queued == 0
            if is_quiet and facts.clients == len(self.clients):
                return facts
            assert time.monotonic() < deadline, f"still there: {list(rows.values())}, {facts}"
            time.sleep(0.05)

    def check(self, descriptors: int) -> c.Facts:
        """Nothing is left of what was done since there were so many descriptors."""
        facts = self.end()
        with suppress(AssertionError):  # connections are closed a moment after their clients left
            wait_until(lambda: self.num_descriptors() <= descriptors + 4)
        now = self.num_descriptors()
        assert now <= descriptors + 4, f"{descriptors} descriptors became {now}"
        log = next(self.engine.home.glob("logs/*.log")).read_text()
        assert "Traceback" not in log, log[log.index("Traceback") :]
        assert not list(self.engine.home.glob("out/.*")), "incomplete files"
        return facts

    def num_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def soak(home: Path, seed: int, *, steps: int = 0, seconds: float = 0.0) -> c.Facts:
    """At least so many steps, for at least so long."""
    engine = Engine(make_home(home), {"FAKE_WORKER": "silent"})
    try:
        assert engine.run("def main(): pass").returncode == 0
        run = Soak(engine, seed)
        descriptors = run.num_descriptors()
        end = time.monotonic() + seconds
        while steps > 0 or time.monotonic() < end:
            run.step()
            steps -= 1
        facts = run.check(descriptors)
        for client in run.clients:
            client.close()
        return facts
    finally:
        end_engine(engine)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random requests to a hub.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = soak(Path(folder), options.seed, seconds=options.seconds)
    starts = f"{facts.worker_starts} workers, {facts.zygote_starts} zygotes"
    print(f"{facts.launched} launches, {starts}, {facts.memory >> 20} MiB")


if __name__ == "__main__":
    main()
