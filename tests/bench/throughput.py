"""Tokens a second, side by side in one run: inferlets on an engine, our bare model loop, and vLLM's
own `LLM.generate`.

    python -m tests.bench.throughput MODEL_FOLDER [--lanes 1,8,32] [--rounds 3] [--json]

Each contestant is a process of its own, loaded once, which waits while another one runs. Rounds
alternate the order; medians are printed. All must generate the same tokens, or the run fails.
Another contestant is one more entry of `CONTESTANTS`: a function that loads, and returns the
function which generates.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

#: prompts, number of new tokens -> new tokens of each prompt
Generate = Callable[[list[list[int]], int], list[list[int]]]
ROOT = Path(__file__).resolve().parents[2]
#: Prompts are random ids from the part of a vocabulary that holds no special tokens.
FIRST_ID, LAST_ID = 1000, 30_000


def load_bare(model_path: str, max_lanes: int, max_tokens: int) -> Generate:
    """Our model without an engine: prefill of all prompts in one batch, then decode steps."""
    from tests.model.drive import Driver
    from worker.model import load

    model = load(model_path, name="bench", max_context=max(512, max_tokens))
    num_pages = 1 + max_lanes * (1 + max_tokens // model.page_size)
    return Driver(model, num_pages).greedy


def load_vllm(model_path: str, max_lanes: int, max_tokens: int, **changes: object) -> Generate:
    """vLLM's engine in this process."""
    from worker.model import vllm_yardstick

    return vllm_yardstick.load(model_path, max_lanes, max_tokens, **changes)


def load_pie(model_path: str, max_lanes: int, max_tokens: int) -> Generate:
    """One sandboxed inferlet for each prompt, with the launches in the time."""
    from tests.bench import pie_engine

    return pie_engine.load(model_path, max_lanes, max_tokens)


CONTESTANTS: dict[str, Callable[[str, int, int], Generate]] = {
    "pie": load_pie,
    "bare": load_bare,
    "vllm": load_vllm,
}


@dataclass
class Row:
    """One contestant at one width."""

    contestant: str
    lanes: int
    seconds: float  # median of a round
    best_seconds: float  # fastest round: what a loaded machine disturbs least
    tokens_per_second: float  # new tokens, by that median; prefill is in the time
    ratio: float  # to the last contestant, which is the yardstick


class Contestant:
    """The parent's end of one contestant's process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.bench.throughput", options.model]
        command += ["--serve", name, "--prompt", str(options.prompt), "--new", str(options.new)]
        command += ["--lanes", ",".join(map(str, options.lanes))]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, prompts: list[list[int]], num_tokens: int) -> tuple[float, list[list[int]]]:
        """Seconds taken, and the new tokens."""
        self._process.stdin.write(json.dumps({"prompts": prompts, "new": num_tokens}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} ended: exit code {self._process.wait()}")
        answer = json.loads(line)
        return answer["seconds"], answer["tokens"]

    def close(self) -> None:
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.wait()


def serve(options: argparse.Namespace) -> None:
    """A contestant's process: one JSON line of prompts in, one of seconds and tokens out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    max_tokens = options.prompt + options.new
    generate = CONTESTANTS[options.serve](options.model, max(options.lanes), max_tokens)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        tokens = generate(request["prompts"], request["new"])
        answer = {"seconds": time.perf_counter() - start, "tokens": tokens}
        print(json.dumps(answer), file=answers, flush=True)


@contextlib.contextmanager
def contestants(options: argparse.Namespace) -> Iterator[list[Contestant]]:
    """All contestants, loaded and warmed up one after the other."""
    started: list[Contestant] = []
    try:
        for name in options.contestants:
            started.append(Contestant(name, options))
            print(f"loading {name}", file=sys.stderr)
            started[-1].ask([[FIRST_ID] * 8], 4)
        yield started
    finally:
        for contestant in started:
            contestant.close()


def measure(options: argparse.Namespace) -> list[Row]:
    seconds: dict[tuple[str, int], list[float]] = {}
    randomness = random.Random(options.seed)
    with contestants(options) as running:
        for round_number in range(options.rounds):
            for lanes in options.lanes:
                prompts = [
                    [randomness.randint(FIRST_ID, LAST_ID) for _ in range(options.prompt)]
                    for _ in range(lanes)
                ]
                order = running if round_number % 2 == 0 else running[::-1]
                answers = {c.name: c.ask(prompts, options.new) for c in order}
                check_equal({name: tokens for name, (_, tokens) in answers.items()})
                for name, (taken, _) in answers.items():
                    seconds.setdefault((name, lanes), []).append(taken)
    return rows(seconds, options)


def check_equal(tokens: dict[str, list[list[int]]]) -> None:
    (first, expected), *others = tokens.items()
    for name, found in others:
        if found != expected:
            differ = sum(a != b for a, b in zip(found, expected, strict=True))
            raise SystemExit(
                f"error: {name} and {first} differ in {differ} of {len(expected)} lanes"
            )


def rows(seconds: dict[tuple[str, int], list[float]], options: argparse.Namespace) -> list[Row]:
    medians = {key: statistics.median(taken) for key, taken in seconds.items()}
    yardstick = options.contestants[-1]
    return [
        Row(
            name,
            lanes,
            round(medians[name, lanes], 4),
            round(min(seconds[name, lanes]), 4),
            round(lanes * options.new / medians[name, lanes], 2),
            round(medians[yardstick, lanes] / medians[name, lanes], 3),
        )
        for lanes in options.lanes
        for name in options.contestants
    ]


def print_table(table: list[Row], options: argparse.Namespace) -> None:
    print(f"{options.prompt} prompt + {options.new} new tokens, median of {options.rounds} rounds")
    heads = "".join(f"{head:>10}" for head in ("tokens/s", "seconds", "best", "ratio"))
    print(f"{'lanes':>5}  {'contestant':<12}{heads}")
    for row in table:
        numbers = f"{row.tokens_per_second:>10.1f}{row.seconds:>10.2f}"
        numbers += f"{row.best_seconds:>10.2f}{row.ratio:>10.2f}"
        print(f"{row.lanes:>5}  {row.contestant:<12}{numbers}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Throughput, side by side.")
    parser.add_argument("model", help="model folder")
    parser.add_argument("--lanes", default="1,8,32", type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--prompt", default=64, type=int, help="tokens of each prompt")
    parser.add_argument("--new", default=64, type=int, help="tokens generated in each lane")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--contestants", default="pie,bare,vllm", type=lambda s: s.split(","))
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--serve", choices=CONTESTANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    if options.serve:
        serve(options)
        return
    table = measure(options)
    if options.json:
        keys = ("model", "prompt", "new", "rounds", "seed")
        facts = {key: getattr(options, key) for key in keys}
        print(json.dumps({**facts, "rows": [asdict(row) for row in table]}))
    else:
        print_table(table, options)


if __name__ == "__main__":
    main()
