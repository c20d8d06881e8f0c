"""Time of one stacked epilogue: `python -m tests.bench.samplers [threads]`. Nothing is asserted."""

import sys
import time
from collections.abc import Callable

import torch

from inferlet import eta
from inferlet.eta import intrinsics
from ipc.types import DType, TensorType
from tests.eta_support import FakeChannel, slot_types, traced
from worker.eta import executor

VOCAB = 49_152
LOGITS = {(0, "logits"): TensorType(DType.f32, (VOCAB,))}
TOKEN = FakeChannel(DType.i32, (1,), "token")
RNG = FakeChannel(DType.u32, (2,), "rng")
KNOBS = FakeChannel(DType.f32, (2,), "knobs")


def put_token(token: eta.Tensor) -> eta.Tensor:
    TOKEN.put(token)
    return token


def advance() -> eta.Tensor:
    state = RNG.take()
    RNG.put(state + eta.constant([0, 1], DType.u32))
    return state


def greedy() -> eta.Tensor:
    return put_token(eta.reduce_argmax(intrinsics.output(0, "logits")))


def nucleus() -> eta.Tensor:
    knobs = KNOBS.read()
    logits = intrinsics.output(0, "logits") / eta.gather(knobs, 0)
    return put_token(eta.nucleus_sample(logits, eta.gather(knobs, 1), advance()))


def sampled_with_score() -> tuple[eta.Tensor, eta.Tensor]:
    logits = intrinsics.output(0, "logits")
    token = put_token(eta.gumbel_max(logits / 0.9, advance()))
    return token, eta.gather(eta.log_softmax(logits), token)


def beam() -> tuple[eta.Tensor, eta.Tensor]:
    logits = intrinsics.output(0, "logits")
    ids = eta.top_k(logits, 4)[1]
    return eta.gather(eta.log_softmax(logits), ids), ids


def milliseconds(stage: Callable, count: int, logits: torch.Tensor, top_p: float) -> float:
    recorded = traced(stage, width=VOCAB)
    compiled = executor.compile(recorded.program, slot_types(recorded), LOGITS, "cpu")
    constants = executor.constant_tensors(recorded.program, recorded.constants)
    counters = torch.arange(count, dtype=torch.int32)
    cells = {
        RNG: torch.stack((counters, counters), 1),
        KNOBS: torch.tensor([[0.8, top_p]]).repeat(count, 1),
    }
    fronts = {slot: cells[recorded.channels[slot]] for slot in compiled.fronts_needed}
    best = float("inf")
    for _ in range(15):
        start = time.perf_counter()
        compiled.run(count, fronts, {(0, "logits"): logits}, constants)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(0)
    wide = torch.randn(32, VOCAB) * 3  # a nucleus of thousands
    narrow = torch.randn(32, VOCAB) * 2.5  # a nucleus of tens
    narrow[:, 6:26] += 12
    for count in (1, 8, 32):
        row = {
            stage.__name__: milliseconds(stage, count, narrow[:count], 0.95)
            for stage in (greedy, nucleus, sampled_with_score, beam)
        }
        row["nucleus_wide"] = milliseconds(nucleus, count, wide[:count], 0.95)
        row["nucleus_whole"] = milliseconds(nucleus, count, wide[:count], 1.0)
        print(count, *(f"{name}={value:.2f}ms" for name, value in row.items()))


if __name__ == "__main__":
    main()
