"""What sequences cost: forks, waves of a model that does nothing, idle sequences, equal prompts.

    python -m tests.bench.state [MODEL_FOLDER] [--requests 32] [--prompt 2000] [--json]

With a model it also measures masked lanes beside plain ones, and equal prompts with the prefix
cache, beside vLLM with its own in the same run. Equal prompts take seconds of the clock, and need a
quiet machine; all else is seconds of the processor. Gaps between tokens: `tests.bench.latency`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, product

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the worker has it

import torch
from torch import Tensor

from ipc import codec
from ipc import messages as m
from ipc.transport import local_pair
from ipc.types import ModelInfo
from tests.bench.throughput import FIRST_ID, LAST_ID, ROOT, load_vllm
from tests.worker.bench import CONFIG, Bench, Chat, Client
from worker import commands
from worker.batch import LaneRows, Seen, assemble
from worker.config import Config
from worker.loop import Engine, calm_collector
from worker.model.base import Batch, Model

WIDTH, VOCABULARY, PAGE_SIZE = 8, 64, 32
NEW = 8  # tokens of each request
NUM_PAGES = 1100  # of the real model


class NullModel:
    """Implements `worker.model.base.Model`, computes nothing."""

    mask_refusal: str | None = None

    def __init__(self) -> None:
        self.page_size, self.device = PAGE_SIZE, torch.device("cpu")
        self.info = ModelInfo(
            "null", "Null", "", VOCABULARY, VOCABULARY, 1, WIDTH, 1 << 20, "float32"
        )
        self._hidden = torch.zeros(4096, WIDTH)
        self._logits = torch.zeros(4096, VOCABULARY)

    def page_bytes(self) -> int:
        return 1

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        pass

    def clear_pages(self, pages: list[int]) -> None:
        pass

    def forward(self, batch: Batch) -> Tensor:
        return self._hidden[: len(batch.readout_rows)]

    def logits(self, hidden: Tensor) -> Tensor:
        return self._logits[: len(hidden)]


class FastBench(Bench):
    """An engine of any model; a step checks nothing."""

    def __init__(self, model: Model, num_pages: int, config: Config) -> None:
        self.hub, worker_end = local_pair()
        self.engine = Engine(model, num_pages, worker_end, config)
        self.clients: dict[int, Client] = {}
        self._numbers = count(1)

    def send_commands(self) -> None:
        for client in self.clients.values():
            if client.commands:
                self.hub.send([], [(client.number, codec.encode_commands(client.commands))])
                client.commands = []

    def step(self) -> bool:
        self.send_commands()
        busy = self.engine.step()
        while (message := self.hub.receive()) is not None:
            for number, data in message[1]:
                self.clients[number].events += codec.decode_events(data)
        return busy

    def end(self, client: Client) -> None:
        self.hub.send([m.ProcessEnded(client.number)], [])
        self.settle()
        del self.clients[client.number]


def null_bench() -> FastBench:
    return FastBench(NullModel(), 1 << 16, replace(CONFIG, row_budget=2048))


# ---- without a model


def wave_costs(lanes: int, waves: int = 60) -> dict[str, float]:
    """Milliseconds of a wave of decodes: all of the engine, and the scheduler alone."""
    bench = null_bench()
    chats = [Chat(bench.client(), [1, 2, 3]) for _ in range(lanes)]
    for chat in chats:
        chat.start()
        chat.run(1 << 20)
    bench.settle()
    whole: list[float] = []
    scheduling: list[float] = []
    next_wave = bench.engine.scheduler.next_wave

    def timed() -> object:
        start = time.process_time()
        wave = next_wave()
        scheduling.append(time.process_time() - start)
        return wave

    bench.engine.scheduler.next_wave = timed
    for _ in range(waves // 6):
        for chat in chats:
            chat.client.say(m.Credit(chat.pipeline, 6))
        bench.send_commands()
        bench.engine.server.drain()
        for _ in range(6):
            start = time.process_time()
            bench.engine.step()
            whole.append(time.process_time() - start)
        while bench.hub.receive() is not None:
            pass
    return {
        "lanes": lanes,
        "scheduler_ms": round(1000 * statistics.median(scheduling), 3),
        "engine_ms": round(1000 * statistics.median(whole), 3),
    }


def fork_costs(length: int, forks: int = 200) -> dict[str, float]:
    """Microseconds of a fork of a sequence of this length, and of dropping the child."""
    bench = null_bench()
    client = bench.client()
    pipeline, ws = client.pipeline(), client.working_set()
    for start in range(0, length, 8192):
        rows = [start % 60 + 1] * min(8192, length - start)
        client.submit(pipeline, client.define_pass(rows, [ws]))
    bench.settle()
    state, process = bench.state, client.process
    taken = []
    for child in range(1000, 1000 + forks):
        start = time.process_time()
        commands.handle(state, process, m.Fork(ws, child, pipeline))
        commands.handle(state, process, m.DropWorkingSet(child))
        taken.append(time.process_time() - start)
    return {"length": length, "fork_us": round(1e6 * statistics.median(taken), 1)}


def idle_memory(length: int = 300, sequences: int = 300) -> dict[str, float]:
    """Bytes of the host's memory for an idle sequence with its passes, pages not counted."""
    bench = null_bench()
    client = bench.client()
    Chat(client, [1] * length).start()
    bench.settle()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(sequences):
        Chat(client, [number % 60] * length).start()
        bench.settle()
        client.events.clear()
    spent = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {"length": length, "bytes": round(spent / sequences)}


# ---- with a model


def load_model(path: str) -> Model:
    from worker.model import load

    model = load(path, name="bench", max_context=8192)
    model.allocate(NUM_PAGES)
    return model


def real_bench(path: str, **changes: object) -> FastBench:
    config = Config(row_budget=512, stats_interval=1e9, **changes)
    return FastBench(load_model(path), NUM_PAGES, config)


def random_tokens(seed: int, length: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randint(FIRST_ID, LAST_ID) for _ in range(length)]


def masked_costs(model: Model, context: int, lanes: int, steps: int = 9) -> dict[str, float]:
    """Milliseconds of the processor for a step of lanes of one row: plain, with a mask that hides
    one slot, and with one that leaves the last 128. They take turns."""
    size = model.page_size
    per_lane = context // size + 1
    held = [array("i", range(1 + n * per_lane, 1 + (n + 1) * per_lane)) for n in range(lanes)]
    hole, window = (torch.ones(1, context + 1, dtype=torch.bool) for _ in range(2))
    hole[0, context // 2] = window[0, : context - 127] = False
    taken: dict[str, list[float]] = {"plain": [], "hole": [], "window": []}
    for _ in range(steps):
        for name, seen in (("plain", None), ("hole", hole), ("window", window)):
            rows = [
                LaneRows([9], context, pages, seen=seen if seen is None else Seen(pages, seen))
                for pages in held
            ]
            start = time.process_time()
            model.forward(assemble(rows, range(lanes), size, model.device))
            taken[name].append(time.process_time() - start)
    plain, *others = (1000 * statistics.median(times) for times in taken.values())
    ratios = [round(other / plain, 2) for other in others]
    return {
        "context": context, "lanes": lanes, "plain_ms": round(plain, 1),
        "hole_ratio": ratios[0], "window_ratio": ratios[1],
    }  # fmt: skip


def shared_prompts(requests: int, prompt: int) -> list[list[int]]:
    """Prompts that end each in 16 tokens of their own."""
    shared = random_tokens(7, prompt - 16)
    return [shared + random_tokens(1000 + number, 16) for number in range(requests)]


def serve_all(bench: FastBench, prompts: list[list[int]]) -> tuple[float, list[list[int]]]:
    """Seconds until all requests have their tokens, and the tokens."""
    chats = [Chat(bench.client(), prompt) for prompt in prompts]
    start = time.perf_counter()
    for chat in chats:
        chat.start()
        chat.run(NEW - 1, credits=6)
        chat.client.commands.append(m.Credit(chat.pipeline, 6))
    bench.settle(100_000)
    seconds = time.perf_counter() - start
    tokens = [chat.tokens for chat in chats]
    for chat in chats:
        bench.end(chat.client)
    return seconds, tokens


def prefix_speed_up(path: str, requests: int, prompt: int) -> dict[str, float]:
    """Equal prompts: without a cache (two requests, scaled up), with ours, and with vLLM's."""
    prompts = shared_prompts(requests, prompt)
    plain = real_bench(path, prefix_cache=False)
    serve_all(plain, [random_tokens(1, 64)])
    alone, _ = serve_all(plain, prompts[:2])
    del plain
    cached = real_bench(path)
    serve_all(cached, [random_tokens(1, 64)])
    ours, tokens = serve_all(cached, prompts)
    again, _ = serve_all(cached, prompts)
    result = {
        "requests": requests, "prompt": prompt, "without_s": round(alone / 2 * requests, 2),
        "ours_s": round(ours, 2), "ours_again_s": round(again, 2),
        "speed_up": round(alone / 2 * requests / ours, 1),
    }  # fmt: skip
    theirs = _ask_vllm(path, prompts)
    same = sum(a == b for a, b in zip(tokens, theirs["tokens"], strict=True))
    return result | {
        "vllm_s": round(theirs["seconds"][0], 2),
        "vllm_again_s": round(theirs["seconds"][1], 2),
        "equal_answers": same,
    }


def _ask_vllm(path: str, prompts: list[list[int]]) -> dict:
    command = [sys.executable, "-m", "tests.bench.state", path, "--serve-vllm"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=json.dumps(prompts), text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def serve_vllm(path: str) -> None:
    """Prompts on stdin; on stdout the seconds of a first and a second time, and the tokens."""
    prompts = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    generate = load_vllm(
        path, len(prompts), 8192, enable_prefix_caching=True, max_num_batched_tokens=8192
    )
    generate([random_tokens(1, 64)], 4)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        tokens = generate(prompts, NEW)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "tokens": tokens}), file=answers, flush=True)


# ---- the table


def measure(options: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    calm_collector()
    for length in (128, 1024, 8192, 32768, 131072):
        yield "fork", fork_costs(length)
    for lanes in (1, 32, 256, 1000):
        yield "wave", wave_costs(lanes)
    yield "idle sequence", idle_memory()
    torch.set_num_threads(threads)
    if options.model:
        model = load_model(options.model)
        for context, lanes in product((256, 1024, 4096), (1, 8)):
            yield "masked lanes", masked_costs(model, context, lanes)
        del model
        yield "equal prompts", prefix_speed_up(options.model, options.requests, options.prompt)


def main() -> None:
    parser = argparse.ArgumentParser(description="What sequences cost.")
    parser.add_argument("model", nargs="?", help="model folder")
    parser.add_argument("--requests", default=32, type=int)
    parser.add_argument("--prompt", default=2000, type=int, help="tokens of the equal prompts")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--serve-vllm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_vllm:
        serve_vllm(options.model)
        return
    for what, numbers in measure(options):
        if options.json:
            print(json.dumps({"what": what, **numbers}), flush=True)
        else:
            facts = "  ".join(f"{name} {value}" for name, value in numbers.items())
            print(f"{what:<14} {facts}", flush=True)


if __name__ == "__main__":
    main()
