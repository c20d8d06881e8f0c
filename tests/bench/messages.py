"""What a message costs: round trips, and the hub's CPU time for each message and relayed event.

    python -m tests.bench.messages [--rounds 3000] [--processes 1,16] [--json]

A real hub, sandbox and SDK around the worker without a model of tests/cli, which sends back what it
is sent. Times of round trips are wall times; costs are CPU time of the hub's process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ipc import client as c
from tests.cli.conftest import ROOT, Engine, end_engine, make_home, wait_until
from tests.cli.hub_client import HubClient

ECHO = """
from inferlet import session
async def main(input):
    while (got := await session.receive()) != "end":
        session.send(got)
"""
PING = """
import time
from inferlet import session
async def main(input):
    times = []
    for i in range(input["rounds"]):
        start = time.perf_counter()
        session.send_to(input["to"], session.id())
        await session.receive()
        times.append(time.perf_counter() - start)
    session.send_to(input["to"], "end")
    return times
"""
PONG = """
from inferlet import session
async def main(input):
    while (sender := await session.receive()) != "end":
        session.send_to(sender, "pong")
"""
TO_ITSELF = """
import time
from inferlet import session
async def main(input):
    times = []
    for i in range(input["rounds"]):
        start = time.perf_counter()
        session.send_to(session.id(), i)
        times.append(time.perf_counter() - start)
        await session.receive()
    return times
"""
SEND = """
import asyncio
from inferlet import session
async def main(input):
    await session.receive()
    for i in range(input["rounds"]):
        session.send("message")
        await asyncio.sleep(0)
"""
# Each round is one frame of one event: out through the hub to the worker, and back.
RELAY = """
import asyncio
from inferlet import session
from inferlet.runtime import handles, inbox
from ipc import codec, frames
from ipc import messages as m
async def main(input):
    arrived, on_frame = asyncio.Event(), inbox.Inbox.on_frame
    def count(self, kind, body):
        on_frame(self, kind, body)
        if kind == frames.ENGINE:
            arrived.set()
    inbox.Inbox.on_frame = count
    event, outbox = codec.encode_events([m.Fired(0, 1, (b"1234",))]), handles.current().outbox
    await session.receive()
    for i in range(input["rounds"]):
        arrived.clear()
        outbox._frame(frames.ENGINE, event)
        await arrived.wait()
"""


@dataclass
class Row:
    """Microseconds. `p50` and `p90` are of wall time, `cpu` is the hub's for each round."""

    what: str
    rounds: int
    p50: float | None
    p90: float | None
    cpu: float


class Bench:
    """One engine and one client of it."""

    def __init__(self, engine: Engine) -> None:
        self.pid = engine.card()["pid"]
        self.client = HubClient(engine)

    def cpu(self) -> float:
        """Seconds of CPU time of the hub, to a hundredth."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def client_round_trips(self, rounds: int) -> Row:
        process = self.client.run(ECHO)
        times, before = [], self.cpu()
        for _ in range(rounds):
            start = time.perf_counter()
            self.client.say(c.Message(process, False, "ping"))
            self.client.wait(c.Sent)
            times.append(time.perf_counter() - start)
        used = self.cpu() - before
        self.client.say(c.Message(process, False, "end"))
        self.client.value_of(process)
        self.client.heard.clear()
        return row("client -> inferlet -> client", times, used)

    def inferlet_round_trips(self, rounds: int) -> Row:
        pong = self.client.run(PONG)
        return self._timed("inferlet -> inferlet -> inferlet", PING, rounds, to=pong)

    def to_itself(self, rounds: int) -> Row:
        return self._timed("send_to, until answered", TO_ITSELF, rounds)

    def _timed(self, what: str, source: str, rounds: int, **fields: str) -> Row:
        before = self.cpu()
        process = self.client.run(source, json.dumps({"rounds": rounds, **fields}))
        times = json.loads(self.client.value_of(process))
        return row(what, times, self.cpu() - before)

    def costs(self, what: str, source: str, rounds: int, num_processes: int) -> Row:
        """The hub's CPU time of a round, with so many processes at it at once."""
        value = json.dumps({"rounds": rounds // num_processes})
        processes = [self.client.run(source, value) for _ in range(num_processes)]
        before = self.cpu()
        for process in processes:
            self.client.say(c.Message(process, False, "go"))
        for process in processes:
            self.client.value_of(process)
        used = self.cpu() - before
        self.client.heard.clear()
        return Row(f"{what}, {num_processes} at once", rounds, None, None, used / rounds * 1e6)


def row(what: str, times: list[float], cpu: float) -> Row:
    p90 = statistics.quantiles(times, n=10)[-1]
    p50 = statistics.median(times)
    return Row(what, len(times), p50 * 1e6, p90 * 1e6, cpu / len(times) * 1e6)


@contextmanager
def running() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        home = make_home(Path(folder))
        engine = Engine(home, {})
        command = [sys.executable, "-m", "pie_cli.engine.daemon", "--model", "fake"]
        command += ["--model-path", str(home / "models" / "fake"), "--log", str(home / "log")]
        process = subprocess.Popen(
            command, cwd=ROOT, env=engine.environment, stdout=subprocess.DEVNULL
        )
        try:
            wait_until(engine.card)
            yield engine
        finally:
            end_engine(engine)
            process.wait()


def measure(rounds: int, counts: list[int]) -> list[Row]:
    """All rows; the costs with each number of processes that send at once."""
    with running() as engine:
        bench = Bench(engine)
        bench.client_round_trips(200)  # the first ones fault in what later ones find
        rows = [
            bench.client_round_trips(rounds),
            bench.inferlet_round_trips(rounds),
            bench.to_itself(rounds),
        ]
        for count in counts:
            rows.append(bench.costs("message to the client", SEND, rounds, count))
            rows.append(bench.costs("event and back by the worker", RELAY, rounds, count))
        bench.client.close()
    return rows


def print_rows(rows: list[Row]) -> None:
    print(f"{'microseconds':<42}{'p50':>8}{'p90':>8}{'hub CPU':>9}")
    for each in rows:
        walls = [f"{value:>8.0f}" if value else f"{'':>8}" for value in (each.p50, each.p90)]
        print(f"{each.what:<42}{''.join(walls)}{each.cpu:>9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Round trips and costs of messages.")
    parser.add_argument("--rounds", default=3000, type=int)
    parser.add_argument("--processes", default="1,16")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    rows = measure(options.rounds, [int(count) for count in options.processes.split(",")])
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print_rows(rows)


if __name__ == "__main__":
    main()
