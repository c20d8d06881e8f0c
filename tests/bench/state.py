"""What sequences cost: forks, waves of a model that does nothing, idle sequences, equal prompts.

    python -m tests.bench.state [MODEL_FOLDER] [--requests 32] [--prompt 2000] [--json]

The last two lines need a model: equal prompts with and without the prefix cache, beside vLLM with its
own, in one run; and the gaps between the tokens of decoding lanes while a long prompt arrives.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ipc import codec
from ipc import messages as m
from ipc.transport import local_pair
from ipc.types import ModelInfo
from tests.worker.bench import CONFIG, Bench, Chat, Client
from worker.loop import Engine, calm_collector
from worker.model.base import Batch

WIDTH, VOCABULARY, PAGE_SIZE = 8, 64, 32


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


class NullBench(Bench):
    """An engine of the null model; a step checks nothing."""

    def __init__(self, num_pages: int = 1 << 16) -> None:
        self.hub, worker_end = local_pair()
        config = replace(CONFIG, row_budget=2048)
        self.engine = Engine(NullModel(), num_pages, worker_end, config)
        self.clients: dict[int, Client] = {}
        self._numbers = iter(range(1, 1 << 30))

    def send_commands(self) -> None:
        for client in self.clients.values():
            if client.commands:
                self.hub.send([], [(client.number, codec.encode_commands(client.commands))])
                client.commands = []

    def step(self) -> bool:
        self.send_commands()
        busy = self.engine.step()
        while self.hub.receive() is not None:
            pass
        return busy


# ---- without a model


def wave_costs(lanes: int, waves: int = 60) -> dict[str, float]:
    """Milliseconds of a wave of decodes: all of the engine, and the scheduler alone."""
    bench = NullBench()
    chats = [Chat(bench.client(), [1, 2, 3]) for _ in range(lanes)]
    for chat in chats:
        chat.start()
        chat.run(1 << 20)
    bench.settle()
    whole, scheduling = [], []
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
        scheduling.clear()
        for _ in range(6):
            start = time.process_time()
            bench.engine.step()
            whole.append(time.process_time() - start)
        while bench.hub.receive() is not None:
            pass
    # The first 6 make up the scheduling of the last round.
    return {
        "scheduler_ms": round(1000 * statistics.median(scheduling[:6]), 3),
        "engine_ms": round(1000 * statistics.median(whole), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What sequences cost.")
    parser.add_argument("model", nargs="?", help="model folder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    calm_collector()
    for lanes in (1, 32, 256, 1000):
        print(lanes, wave_costs(lanes), file=sys.stderr)


if __name__ == "__main__":
    main()
