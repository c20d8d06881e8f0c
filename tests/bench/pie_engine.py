"""A real engine for benchmarks: hub, worker, zygote, and one sandboxed inferlet for each prompt."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pie_cli.bench_apps import GREEDY

ROOT = Path(__file__).resolve().parents[2]


def start(model_path: str) -> None:
    """An engine with an own home, in this process's environment, which ends with this process."""
    home = tempfile.mkdtemp(prefix="pie-")
    os.environ |= {"PIE_HOME": home, "PYTHONPATH": str(ROOT)}

    def pie(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "pie_cli", *words], check=True, stdout=2)

    pie("models", "add", model_path, "--name", "bench")
    atexit.register(pie, "stop")
    pie("run", str(ROOT / "inferlets/hello.py"), "--no-stdin", "--model", "bench")


def load(model_path: str, max_lanes: int, max_tokens: int) -> Callable:
    """`generate(prompts, num_tokens)`: one greedy inferlet for each prompt, launched at once."""
    from pie_cli.starting import find_engine

    start(model_path)
    return partial(generate, find_engine("bench"))


def generate(connection, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
    """The tokens of one greedy inferlet for each prompt. SystemExit when one does not return."""
    from ipc import client as c

    for i, prompt in enumerate(prompts):
        value = json.dumps({"prompt": prompt, "new": num_tokens})
        connection.send(c.Run(i, "greedy.py", GREEDY, {}, value, {}))
    numbers: dict[str, int] = {}
    answers: dict[int, list[int]] = {}
    while len(answers) < len(prompts):
        connection.wait(None)
        while message := connection.receive():
            match message:
                case c.Launched(request, process):
                    numbers[process] = request
                case c.Returned(process, _, value):
                    answers[numbers[process]] = json.loads(value)
                case c.Error() | c.EngineFailed() | c.Refused():
                    raise SystemExit(f"error: {message}")
    return [answers[i] for i in range(len(prompts))]
