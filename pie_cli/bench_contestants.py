"""Who is measured: this engine through the Python client, and vLLM in a process of its own."""

import json
import random
import subprocess
import sys
import time
from typing import Any, Protocol, Self

from ipc import client as c
from pie_cli import settings
from pie_cli.bench_apps import GREEDY, LAUNCH
from pie_cli.client import Client, wait
from pie_cli.client_errors import EngineError

STATS_SECONDS = 1.5  # further apart than the worker reports
_YARDSTICK = "worker.model.vllm_yardstick"

Prompts = list[list[int]]


class Contestant(Protocol):
    """`generate` gives the new tokens of each prompt, greedily."""

    name: str

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]: ...


class Pie:
    """One process for each prompt, launched at once: the launches are in the time."""

    name = "pie"

    def __init__(self, model: str | None) -> None:
        self.client = Client(model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        inputs = [{"prompt": prompt, "new": new} for prompt in prompts]
        launched = self.client.launch_all({"source": GREEDY, "input": each} for each in inputs)
        return [process.result() for process in launched]

    def launch_seconds(self) -> float:
        """From the request to the first line of `main`."""
        start = time.time()
        return self.client.launch(source=LAUNCH).result() - start

    def facts(self) -> c.Facts:
        return wait(self.client.link.ask(lambda number: c.AskFacts(number)))

    def messages(self) -> int:
        """All that hub and worker have said to each other, once both are idle."""
        before = None
        while True:
            now = wait(self.client.link.ask_in_turn(c.List(), c.Processes)).worker
            if now is not None and now == before:
                return now.messages_in + now.messages_out
            before = now
            time.sleep(STATS_SECONDS)


class Vllm:
    """vLLM's own engine, by JSON lines."""

    name = "vllm"

    def __init__(self, model_path: str, lanes: int, tokens: int, dtype: str) -> None:
        command = [sys.executable, "-P", "-m", _YARDSTICK, model_path, "--dtype", dtype]
        command += ["--lanes", str(lanes), "--tokens", str(tokens)]
        log = settings.new_log("vllm")
        self._log = str(log)
        with log.open("wb") as output:  # libraries talk
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
                cwd=settings.ROOT, env=settings.program_environment(),
            )  # fmt: skip
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        print(json.dumps({"prompts": prompts, "new": new}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise EngineError(f"vLLM ended with exit code {code}", log=self._log)
        return json.loads(line)


class Dice:
    """Random prompts from the part of a vocabulary that holds no special tokens."""

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._first, self._last = min(1000, vocabulary // 4), min(30_000, vocabulary * 3 // 4)

    def prompts(self, lanes: int, length: int) -> Prompts:
        return [
            [self._random.randint(self._first, self._last) for _ in range(length)]
            for _ in range(lanes)
        ]
