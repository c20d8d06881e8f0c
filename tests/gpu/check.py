"""What only an accelerator can show, as one program: `python -m tests.gpu.check MODEL`.

Prints one JSON object a check and ends with 1 when any failed. With `--device cpu` the same checks
run anywhere, so that the program itself is known to work.
"""

import argparse
import json
import random as stdlib_random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ipc.eta.check import check
from tests.eta_programs import cell, program
from tests.eta_support import OP_VECTORS, disagreements, is_error, slot_types, stage_of, traced
from tests.model.drive import Driver, Lane
from tests.worker.test_executor import to_numpy, to_torch
from worker.eta import executor

PROGRAMS = 300
NUM_PAGES = 4096
NEW_TOKENS = 48
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.5}  # of logits, against transformers in float32
PROMPTS = ["The capital of France is", "Why is the sky blue?", "def fibonacci(n):\n", "A"]

Facts = dict[str, Any]


def run(compiled: executor.CompiledProgram, fronts: list[np.ndarray], constants: list, device: str):
    """The results in numpy; `fronts[slot]` is `[instances, *shape]`."""
    given = {slot: to_torch(value).to(device) for slot, value in enumerate(fronts)}
    output = compiled.run(len(fronts[0]) if fronts else 1, given, {}, constants)
    types = [made.dtype for made in compiled.result_types]
    return [to_numpy(value.cpu(), kind) for value, kind in zip(output.results, types, strict=True)]


def vectors(device: str) -> Facts:
    """Every op's published values, three instances stacked."""
    wrong = []
    cases = [case for case in OP_VECTORS if not is_error(case)]
    for case in cases:
        stage = traced(stage_of(case))
        compiled = executor.compile(stage.program, slot_types(stage), {}, device)
        constants = executor.constant_tensors(stage.program, stage.constants)
        fronts = [np.repeat(channel.front[None], 3, 0) for channel in stage.channels]
        results = run(compiled, fronts, [one.to(device) for one in constants], device)
        if disagreements(case, [result[0] for result in results]):
            wrong.append(case["id"])
    return {"cases": len(cases), "wrong": wrong, "ok": not wrong}


def random_programs(device: str) -> Facts:
    """Against the CPU's kernels: integers, booleans and random bits exactly, floats closely."""
    wrong = []
    for seed in range(PROGRAMS):
        random = stdlib_random.Random(seed)
        made, slots = program(random, 12)
        check(made, slots, {})
        fronts = [np.stack([cell(random, kind) for _ in range(2)]) for kind in slots]
        pair = []
        for where in ("cpu", device):
            pair.append(run(executor.compile(made, slots, {}, where), fronts, [], where))
        if not all(_agree(left, right) for left, right in zip(*pair, strict=True)):
            wrong.append(seed)
    # An index may differ where two floats differ in the last bit: a handful is not a fault.
    return {"programs": PROGRAMS, "differ": wrong, "ok": len(wrong) <= PROGRAMS // 50}


def _agree(left: np.ndarray, right: np.ndarray) -> bool:
    if left.dtype.kind != "f":
        return np.array_equal(left, right)
    return np.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True)


def model_tokens(path: str, device: str, dtype: str) -> Facts:
    """Greedy tokens, alone as together, and the first logits against transformers in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from worker.model import load

    tokenizer = AutoTokenizer.from_pretrained(path)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(device).eval()
    with torch.inference_mode():
        wanted = reference(torch.tensor([prompts[0]], device=device)).logits[0, -1].float()
        ids = torch.tensor([prompts[1]], device=device)
        greedy = reference.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS)[0]
    kind = "cpu" if device == "cpu" else "auto"
    driver = Driver(load(path, name="checked", dtype=dtype, device=kind), NUM_PAGES)
    difference = (driver.step([(Lane(), prompts[0])])[0] - wanted).abs().max().item()
    together = driver.greedy(prompts, NEW_TOKENS)
    alone = [driver.greedy([prompt], NEW_TOKENS)[0] for prompt in prompts]
    transformers_tokens = greedy[len(prompts[1]) :].tolist()
    same = sum(left == right for left, right in zip(together, alone))
    equal = together[1][: len(transformers_tokens)] == transformers_tokens
    return {
        "dtype": dtype, "max_logit_difference": difference, "alone_as_together": f"{same}/4",
        "greedy_as_transformers": equal,
        "ok": difference < TOLERANCE[dtype] and (dtype != "float32" or (equal and same == 4)),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.gpu.check", description=__doc__)
    parser.add_argument("model", help="the folder of SmolLM2-135M-Instruct")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtype", default="float32", choices=tuple(TOLERANCE))
    options = parser.parse_args()
    checks: dict[str, Callable[[], Facts]] = {
        "vectors": lambda: vectors(options.device),
        "random_programs": lambda: random_programs(options.device),
        "model": lambda: model_tokens(options.model, options.device, options.dtype),
    }
    failed = False
    for name, one in checks.items():
        started = time.monotonic()
        try:
            facts = one()
        except Exception as error:  # noqa: BLE001 - the next check says something of its own
            facts = {"ok": False, "error": f"{type(error).__name__}: {error}"[:400]}
        failed |= not facts["ok"]
        print(json.dumps({"check": name, **facts, "seconds": round(time.monotonic() - started, 1)}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
