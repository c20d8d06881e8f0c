"""Gaps between the tokens of decoding lanes, by themselves and while a long prompt arrives.

    python -m tests.bench.latency MODEL_FOLDER [--lanes 16] [--prompt 4000] [--rounds 2] [--json]
        [--pace processor]

Through the whole engine, on one real model. Gaps are told in seconds of the clock, and in seconds
of the processor, which other programs on the machine disturb less. On a machine that is not idle,
let the engine pace by the processor as well: it keeps to what it measures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the worker has it, before torch is imported

from ipc import messages as m
from ipc.transport import local_pair
from tests.bench.state import FastBench
from tests.bench.throughput import FIRST_ID, LAST_ID
from tests.worker.bench import Chat
from worker.config import Config
from worker.loop import Engine, calm_collector

CLOCKS: dict[str, Callable[[], float]] = {
    "clock": time.perf_counter, "processor": time.process_time,
}  # fmt: skip
Gaps = dict[str, list[float]]  # by clock, in milliseconds


def load(path: str, lanes: int, prompt: int, pace: str) -> FastBench:
    from worker.model import load as load_model

    model = load_model(path, name="bench", max_context=8192)
    pages = 2 + (prompt + lanes * 2048) // model.page_size
    model.allocate(pages)
    calm_collector()
    config = Config(row_budget=512, stats_interval=1e9, prefix_cache=False)
    bench = FastBench(model, pages, config)
    bench.hub, worker_end = local_pair()
    bench.engine = Engine(model, pages, worker_end, config, CLOCKS[pace])
    return bench


def tokens(generator: random.Random, length: int) -> list[int]:
    return [generator.randint(FIRST_ID, LAST_ID) for _ in range(length)]


def gaps(bench: FastBench, chats: list[Chat], waves: Iterator) -> Gaps:
    """Steps the engine once for each of `waves`; the gaps between the tokens of each lane."""
    last: dict[str, list[float]] = {name: [0.0] * len(chats) for name in CLOCKS}
    found: Gaps = {name: [] for name in CLOCKS}
    for _ in waves:
        bench.step()
        now = {name: clock() for name, clock in CLOCKS.items()}
        for lane, chat in enumerate(chats):
            arrived = len(chat.client.events)
            chat.client.events.clear()
            if arrived:
                chat.client.say(m.Credit(chat.pipeline, arrived))
                for name in CLOCKS:
                    if last[name][lane]:
                        found[name].append(1000 * (now[name] - last[name][lane]))
                    last[name][lane] = now[name]
    return found


def measure(bench: FastBench, lanes: int, prompt: int, seed: int) -> dict[str, Gaps | float]:
    """Gaps alone and beside the prompt, and how long that took to its first token."""
    generator = random.Random(seed)
    chats = [Chat(bench.client(), tokens(generator, 32)) for _ in range(lanes)]
    for chat in chats:
        chat.start()
    bench.settle()
    for chat in chats:
        chat.client.events.clear()
        chat.run(100_000)
    alone = gaps(bench, chats, iter(range(40)))
    long = Chat(bench.client(), tokens(generator, prompt))
    long.start()
    start = time.perf_counter()
    beside = gaps(bench, chats, iter(lambda: bool(long.tokens), True))
    seconds = time.perf_counter() - start
    for client in list(bench.clients.values()):
        bench.end(client)
    return {"alone": alone, "beside": beside, "prompt_seconds": seconds}


def summary(found: dict) -> Iterator[dict[str, object]]:
    """A row for each clock: percentiles, p99 to p50 of the same gaps, and to p50 without prompt."""
    for name in CLOCKS:
        calm = statistics.median(found["alone"][name])
        for when in ("alone", "beside"):
            values = sorted(found[when][name])
            p50, p99 = statistics.median(values), values[int(len(values) * 0.99)]
            yield {
                "gaps": when, "by": name, "p50_ms": round(p50, 1), "p99_ms": round(p99, 1),
                "most_ms": round(values[-1], 1), "p99/p50": round(p99 / p50, 2),
                "p99/p50_alone": round(p99 / calm, 2),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Gaps between tokens.")
    parser.add_argument("model", help="model folder")
    parser.add_argument("--lanes", default=16, type=int)
    parser.add_argument("--prompt", default=4000, type=int)
    parser.add_argument("--rounds", default=2, type=int)
    parser.add_argument("--pace", default="clock", choices=CLOCKS, help="what the engine measures")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args()
    bench = load(options.model, options.lanes, options.prompt, options.pace)
    for number in range(options.rounds):
        found = measure(bench, options.lanes, options.prompt, number)
        for row in summary(found):
            row = {"round": number, **row, "prompt_s": round(found["prompt_seconds"], 1)}
            words = "  ".join(f"{key} {value}" for key, value in row.items())
            print(json.dumps(row) if options.json else words, flush=True)


if __name__ == "__main__":
    main()
