"""What an attack costs others: round trips between two inferlets, alone and beside a flood.

    python -m tests.bench.under_attack [--rounds 400] [--turns 5] [--json]

Calm and attacked turns alternate on one engine, and a fresh attacker floods through each attacked
turn. A process that only computes is a yardstick: on few cores any busy process costs others time.
"""

import argparse
import json
import statistics
from dataclasses import asdict, dataclass

from ipc import client as c
from tests.bench.messages import PING, PONG, running
from tests.cli.conftest import Engine
from tests.cli.hub_client import HubClient
from tests.cli.test_hostile_frames import FLOODS, HEAD

COMPUTES = """
async def main(input):
    while True:
        pass
"""


@dataclass
class Row:
    """Wall times of round trips in microseconds; `ratio` is of the two p99."""

    attack: str
    calm_p50: float
    calm_p99: float
    p50: float
    p99: float
    ratio: float


def flood(message: str) -> str:
    """An app that sends without end, and reads nothing of the answers."""
    return HEAD.replace('    session.send("here")\n    await session.receive()\n', "") + (
        f"    own, many = channel(), said({message}) * 1000\n    while True:\n"
        "        own.sendall(many)\n"
    )


def round_trips(client: HubClient, rounds: int) -> list[float]:
    pong = client.run(PONG)
    ping = client.run(PING, json.dumps({"rounds": rounds, "to": pong}))
    times = json.loads(client.value_of(ping))
    client.value_of(pong)
    return times


def measure(engine: Engine, client: HubClient, name: str, source: str, rounds: int, turns: int) -> Row:
    calm, attacked = [], []
    for _ in range(turns):
        calm += round_trips(client, rounds)
        attacker = HubClient(engine)
        process = attacker.run(source)
        attacked += round_trips(client, rounds)
        attacker.say(c.Kill((process,)))
        attacker.close()
    (calm_p50, calm_p99), (p50, p99) = map(percentiles, (calm, attacked))
    return Row(name, calm_p50, calm_p99, p50, p99, p99 / calm_p99)


def percentiles(times: list[float]) -> tuple[float, float]:
    return statistics.median(times) * 1e6, statistics.quantiles(times, n=100)[-1] * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Round trips of others during an attack.")
    parser.add_argument("--rounds", default=400, type=int)
    parser.add_argument("--turns", default=5, type=int)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    attacks = {"a process that computes": COMPUTES}
    attacks |= {f"flood of {name}": flood(message) for name, message in FLOODS.items()}
    with running() as engine:
        client = HubClient(engine)
        client.run("async def main(i):\n  import asyncio\n  await asyncio.sleep(6000)", name="sink")
        round_trips(client, 200)  # the first ones fault in what later ones find
        rows = [
            measure(engine, client, name, source, options.rounds, options.turns)
            for name, source in attacks.items()
        ]
        client.close()
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'microseconds':<34}{'calm p50':>10}{'p99':>8}{'p50':>8}{'p99':>8}{'ratio':>7}")
    for row in rows:
        numbers = f"{row.calm_p50:>10.0f}{row.calm_p99:>8.0f}{row.p50:>8.0f}{row.p99:>8.0f}"
        print(f"{row.attack:<34}{numbers}{row.ratio:>7.2f}")


if __name__ == "__main__":
    main()
