"""Twenty inferlets that decode and write to each other, and parts that are killed at random moments.

python -m tests.end_to_end.kill_rounds [--rounds N] [--seed N]
"""

import argparse
import json
import os
import random
import re
import signal
import tempfile
import time
from pathlib import Path

from ipc import client as c
from tests.cli import faults
from tests.cli.conftest import wait_until
from tests.cli.faults import FaultyEngine, Run, descendants
from tests.cli.hub_client import HubClient

START_SECONDS = 400.0  # of an engine and its processes, beside much else
COPIES = 10  # of each of two clients
PARTS = ("client", "inferlet", "inferlet", "spare", "worker", "zygote", "hub")
APP = """
import asyncio, os
from inferlet import *

async def main(input):
    peers = []
    async def listen():
        while (message := await session.receive()) != "end":
            if isinstance(message, list):
                peers.append(message)
    listener = asyncio.ensure_future(listen())
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    def step():
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t
    pre, dec = ForwardPass(), ForwardPass()
    pre.embed([1, 2, 3 + input["_copy"]])
    dec.embed(tok)
    for p in (pre, dec):
        p.state([ws], StateGeometry.folding())
    first, _ = pre.epilogue(step), dec.epilogue(step)
    pipe.submit(pre)
    await first
    session.send(f"here {os.getpid()}\\n")
    n = 0
    while not listener.done():
        if n < 900:
            await pipe.run_ahead(dec, 8, lambda t: True)
            n += 8
        else:
            await asyncio.sleep(0.01)
        for peer in peers[0] if peers else ():
            try:
                session.send_to(peer, {"n": n})
            except (LookupError, BufferError):
                pass
    return "done"
"""


def one_round(faulty: FaultyEngine, rand: random.Random) -> str:
    """What was killed. Fails when something is left, or an exit code is not of that kind."""
    faulty.ready()
    runs = [faulty.run(APP, "-n", COPIES, name=None) for _ in range(2)]
    for run in runs:
        wait_for_all(run)
    client = HubClient(faulty.engine)
    try:
        ids = list(client.rows())
        for id in ids:
            peers = json.dumps(rand.sample(ids, 2))
            client.say(c.Message(id, True, peers))
        hub = faulty.pid_of("hub")
        before = descendants(hub)
        time.sleep(rand.random() * 0.3)
        part = rand.choice(PARTS)
        victim = runs[0]
        inner = rand.choice(inner_pids(victim))
        pid = victims_pid(faulty, part, victim, inner)
        faulty.kill(part, pid)
        if part in ("worker", "zygote"):  # all end with it, unless they were told to end before
            wait_until(lambda: not client.rows())
        elif part != "hub":
            end_all(client, runs)
        check_exits(part, runs)
    finally:
        client.close()
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)
    faulty.end_runs()
    return part


def victims_pid(faulty: FaultyEngine, part: str, run: Run, inner: int) -> int:
    if part == "inferlet":
        return faulty.inferlet(inner)
    if part == "spare":
        return faulty.spares()[-1]
    return faulty.pid_of(part, run)


def wait_for_all(run: Run) -> None:
    deadline = time.monotonic() + START_SECONDS
    while len(inner_pids(run)) < COPIES:
        is_late = time.monotonic() > deadline
        assert run.process.poll() is None and not is_late, run.err.read_text()
        time.sleep(0.05)


def inner_pids(run: Run) -> list[int]:
    """What its apps call themselves; whose word it is may stand before."""
    return [
        int(number) for number in re.findall(r"\bhere (\d+)$", run.err.read_text(), re.MULTILINE)
    ]


def end_all(client: HubClient, runs: list[Run]) -> None:
    """Those that live are told to end, until all have."""

    def told() -> bool:
        for id in client.rows():
            client.send(id, "end")
        return all(run.process.poll() is not None for run in runs)

    wait_until(told)


def check_exits(part: str, runs: list[Run]) -> None:
    first, second = (run.end() for run in runs)
    expected = {
        "client": (-signal.SIGKILL, 0), "inferlet": (137, 0), "spare": (0, 0), "worker": (3, 3),
        "zygote": (3, 3), "hub": (3, 3),
    }[part]  # fmt: skip
    assert (first[0], second[0]) == expected, (part, first, second)
    for status, out, said in (first, second):
        assert "Traceback" not in said, said
        if status == 0:
            assert out == '"done"\n' * COPIES, out
    if part == "inferlet":
        assert first[1].count('"done"') == COPIES - 1, first


def rounds(home: Path, count: int, seed: int) -> None:
    """Prints a line for each round."""
    faulty = FaultyEngine(home, "tests.end_to_end.tiny_worker")
    faulty.engine.extra |= {"OMP_NUM_THREADS": "1"}
    with faults.adopting():
        try:
            for number in range(seed, seed + count):
                print(f"seed {number}: ", end="", flush=True)
                print(one_round(faulty, random.Random(number)), flush=True)
        finally:
            faulty.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("PIE_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="pie-") as folder:
        rounds(Path(folder), options.rounds, options.seed)


if __name__ == "__main__":
    main()
