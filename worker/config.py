"""Settings of the engine, from the command line or from tests. Reads nothing else."""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Config:
    """How the engine schedules. Seconds unless another unit is named."""

    row_budget: int = 2048  # rows of one wave
    short_rows: int = 128  # a fire with at most so many rows left is not held up by a long one
    decode_rows: int = 8  # a fire with at most so many is a decode
    min_chunk: int = 16  # a long pass is not cut finer
    passed_over: int = 32  # waves without a process that is ready: then it goes before all others
    # Of the work of stages in one wave, about nanoseconds of a core (`ipc.eta.work`):
    light_steps: int = 1 << 26  # a fire with more is heavy: it never joins a wave of other heavy ones
    heavy_steps: int = 1 << 28  # … unless they have no more than this together
    process_steps: int = 1 << 30  # of one process, if it is more than one fire
    max_embed_length: int = 8192
    run_ahead_window: int = 6
    patience_floor: float = 0.002  # how long a wave waits for the submits that usually follow
    patience_share: float = 0.05  # … as a share of the last wave
    memory_grace: float = 1.0  # without progress for so long, memory counts as exhausted for good
    stats_interval: float = 1.0
    overlap: bool = False  # launch a wave before the values of the last one arrived
    tokens_stay: bool = False  # token ids that are tokens by construction are not read by the host
    prefix_cache: bool = True
    min_shared: int = 32  # a fire waits for so many rows of another one's rather than compute them
    swap_pages: int = 1 << 20  # that suspended sequences may keep in host memory
    idle_waves: int = 16  # a sequence that waits for its inferlet keeps its pages for so long
    tenure_waves: int = 64  # … and one that has just come back, whoever wants them


@dataclass(frozen=True, slots=True)
class Arguments:
    """What `python -m worker` was asked to serve."""

    link: str
    model_path: str
    model_name: str
    dtype: str
    device: str
    kv_bytes: int | None
    max_context: int | None


def parse_arguments(words: Sequence[str] | None = None) -> Arguments:
    parser = ArgumentParser(prog="python -m worker", description="The engine process.")
    parser.add_argument("--link", required=True, help="ZeroMQ address that the hub has bound")
    parser.add_argument("--model-path", required=True, help="folder of the model")
    parser.add_argument("--model-name", required=True, help="name under which it is served")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kv-bytes", type=int, help="memory for pages")
    parser.add_argument("--max-context", type=int, help="shortens the model's context")
    return Arguments(**vars(parser.parse_args(words)))


def default_kv_bytes(available: int) -> int:
    """Bytes for pages, of the memory that is available."""
    return min(4 * GIB, available // 4)


def default_swap_bytes(available: int) -> int:
    """Bytes of host memory that suspended sequences may take; none are taken before that."""
    return min(32 * GIB, available // 4)


def available_memory() -> int:
    """Bytes of host memory that can be had without swapping."""
    with open("/proc/meminfo") as lines:
        for line in lines:
            name, value, *_ = line.split()
            if name == "MemAvailable:":
                return int(value) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")
