"""Time of one stacked epilogue: `python -m tests.bench.samplers [threads]`, and its share of a wave
of 32 decoding lanes: `python -m tests.bench.samplers wave MODEL_PATH`. Nothing is asserted.
"""

import statistics
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


def top_k() -> eta.Tensor:
    values, ids = eta.top_k(intrinsics.output(0, "logits"), 50)
    return put_token(eta.cast(eta.gather(ids, eta.gumbel_max(values, advance())), DType.i32))


def cummass() -> eta.Tensor:
    probabilities = eta.softmax(intrinsics.output(0, "logits"))
    return eta.cummass_le(probabilities, eta.gather(KNOBS.read(), 1))


def prepared(stage: Callable, count: int, logits: torch.Tensor, top_p: float) -> Callable:
    """A call of the epilogue for `count` lanes."""
    recorded = traced(stage, width=VOCAB)
    compiled = executor.compile(recorded.program, slot_types(recorded), LOGITS, "cpu")
    constants = executor.constant_tensors(recorded.program, recorded.constants)
    counters = torch.arange(count, dtype=torch.int32)
    cells = {
        RNG: torch.stack((counters, counters), 1),
        KNOBS: torch.tensor([[0.8, top_p]]).repeat(count, 1),
    }
    fronts = {slot: cells[recorded.channels[slot]] for slot in compiled.fronts_needed}
    return lambda: compiled.run(count, fronts, {(0, "logits"): logits}, constants)


def milliseconds(act: Callable, rounds: int = 15) -> float:
    """The fastest of some rounds: the machine may be busy."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def epilogues(threads: int) -> None:
    torch.set_num_threads(threads)
    wide = torch.randn(32, VOCAB) * 3  # a nucleus of thousands
    narrow = torch.randn(32, VOCAB) * 2.5  # a nucleus of tens
    narrow[:, 6:26] += 12
    for count in (1, 8, 32):
        row = {
            stage.__name__: milliseconds(prepared(stage, count, narrow[:count], 0.95))
            for stage in (greedy, nucleus, sampled_with_score, beam)
        }
        row["nucleus_wide"] = milliseconds(prepared(nucleus, count, wide[:count], 0.95))
        row["nucleus_whole"] = milliseconds(prepared(nucleus, count, wide[:count], 1.0))
        print(count, *(f"{name}={value:.2f}ms" for name, value in row.items()))


def wave(path: str, rounds: int = 30) -> None:
    """Forwards of 32 lanes that decode at a context of 8, and in turn with them each epilogue on
    their own logits: medians, so that what else the machine does weighs on both alike."""
    from tests.model.drive import Driver, Lane
    from worker.model import load

    driver = Driver(load(path, name="model"), 512)
    lanes = [Lane() for _ in range(32)]
    for number, lane in enumerate(lanes):
        driver.step([(lane, [(7 * number + i) % 1000 for i in range(8)])])
    work = [(lane, [5]) for lane in lanes]
    logits = driver.step(work).float()
    acts = {
        stage.__name__: prepared(stage, 32, logits, 0.95)
        for stage in (greedy, nucleus, beam, top_k, cummass, sampled_with_score)
    }
    acts["nucleus, p = 1"] = prepared(nucleus, 32, logits, 1.0)
    acts["nucleus, flat rows"] = prepared(nucleus, 32, torch.zeros_like(logits), 0.95)
    taken: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, act in {"forward": lambda: driver.step(work, write=False), **acts}.items():
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            taken.setdefault(name, []).append(
                (time.perf_counter() - wall, time.process_time() - cpu)
            )
    medians = {name: [*map(statistics.median, zip(*each))] for name, each in taken.items()}
    threads = torch.get_num_threads()
    wall, cpu = medians.pop("forward")
    print(f"forward of 32 lanes, {threads} threads: {wall * 1e3:.1f}ms, {cpu * 1e3:.1f}ms of cpu")
    for name, (own_wall, own_cpu) in medians.items():
        # Epilogues run on one thread: on idle cores, their time is their cpu time.
        shares = own_wall / (own_wall + wall), own_cpu / (own_cpu + cpu / threads)
        print(
            f"{name}: {own_wall * 1e3:.2f}ms, {shares[0]:.1%} of the wave; "
            f"{own_cpu * 1e3:.2f}ms of cpu, {shares[1]:.1%} of a wave on idle cores"
        )


def main() -> None:
    torch.manual_seed(0)
    if sys.argv[1:2] == ["wave"]:
        with torch.inference_mode():
            wave(sys.argv[2])
    else:
        epilogues(int(sys.argv[1]) if len(sys.argv) > 1 else 1)


if __name__ == "__main__":
    main()
