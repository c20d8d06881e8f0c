"""`python -m worker`: the engine process. Loads a model, tells the hub, serves until told to stop.

Exit codes: 0 after a shutdown, 3 when the model could not be loaded. Logs go to stderr.
"""

from __future__ import annotations

import time

STARTED = time.monotonic()

import ctypes  # noqa: E402 - the clock starts before anything is imported
import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from types import FrameType  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

# Before torch loads OpenMP: its threads wait for each other by spinning, which on cores that they
# share with inferlets keeps the very thread from running that they wait for.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

from ipc import messages as m  # noqa: E402
from ipc.codec import PROTOCOL_VERSION  # noqa: E402
from ipc.transport import ZmqLink  # noqa: E402
from ipc.types import EngineInfo  # noqa: E402
from worker.config import (  # noqa: E402
    Arguments,
    Config,
    available_memory,
    default_kv_bytes,
    default_swap_bytes,
    parse_arguments,
)

if TYPE_CHECKING:  # torch is imported later, when the hub has heard from us
    import torch

    from worker.loop import Engine
    from worker.model import Model

PR_SET_PDEATHSIG = 1
LOAD_FAILED = 3
MIN_PROGRESS = 0.01  # of the load, between two reports

log = logging.getLogger("worker")


def main() -> int:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s"
    )
    arguments = parse_arguments()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the client's business
    signal.signal(signal.SIGTERM, end_orderly)
    link = ZmqLink(arguments.link, bind=False, is_hub=False)
    try:
        return serve(arguments, link)
    except SystemExit:
        log.info("told to stop")
        return 0
    finally:
        link.close()


def die_with_parent() -> None:
    """The engine never outlives the hub, however the hub ends."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        sys.exit(1)


def end_orderly(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def serve(arguments: Arguments, link: ZmqLink) -> int:
    timings: dict[str, float] = {}
    try:
        engine = load(arguments, link, timings)
    except Exception as error:
        log.exception("the model could not be loaded")
        link.send([m.LoadFailed(_first_line(error), _hint(error))], [])
        return LOAD_FAILED
    link.send([m.Ready(engine.state.model, engine_info(engine), timings)], [])
    log.info("ready: %s", ", ".join(f"{name} {spent:.1f} s" for name, spent in timings.items()))
    engine.run()
    return 0


def load(arguments: Arguments, link: ZmqLink, timings: dict[str, float]) -> Engine:
    """An engine that has served a prefill and a decode already."""
    link.send([m.Loading(0.0, "importing the engine")], [])
    import torch

    from worker.loop import Engine
    from worker.model import load as load_model

    torch.set_grad_enabled(False)
    report = Progress(link)
    model = load_model(
        arguments.model_path,
        name=arguments.model_name,
        dtype=arguments.dtype,
        device=arguments.device,
        max_context=arguments.max_context,
        progress=report,
    )
    report.finish_import()
    timings["import"] = report.imported - STARTED
    timings["load"] = time.monotonic() - report.imported
    report(1.0, "warming up")
    started = time.monotonic()
    num_pages = choose_num_pages(model.page_bytes(), arguments.kv_bytes, model.device)
    model.allocate(num_pages)
    warm_up(model)
    timings["warm_up"] = time.monotonic() - started
    is_cuda = model.device.type == "cuda"
    # A wave of a CPU takes long: shorter ones keep decodes going beside a prefill.
    config = Config(
        row_budget=2048 if is_cuda else 512, overlap=is_cuda, tokens_stay=is_cuda,
        swap_pages=default_swap_bytes(available_memory()) // model.page_bytes(),
    )  # fmt: skip
    return Engine(model, num_pages, link, config)


class Progress:
    """Passes a loader's progress on, not too finely, and notes when its imports were done."""

    def __init__(self, link: ZmqLink) -> None:
        self.link = link
        self.imported = 0.0
        self._last = (-1.0, "")

    def __call__(self, fraction: float, text: str) -> None:
        if fraction > 0:
            self.finish_import()
        if text != self._last[1] or fraction - self._last[0] >= MIN_PROGRESS:
            self._last = (fraction, text)
            self.link.send([m.Loading(fraction, text)], [])

    def finish_import(self) -> None:
        self.imported = self.imported or time.monotonic()


def choose_num_pages(page_bytes: int, kv_bytes: int | None, device: torch.device) -> int:
    """Pages for the memory that was asked for, else for a quarter of what is available."""
    if kv_bytes is None:
        if device.type == "cuda":
            import torch

            kv_bytes = int(torch.cuda.mem_get_info(device)[0] * 0.85)
        else:
            kv_bytes = default_kv_bytes(available_memory())
    num_pages = kv_bytes // page_bytes
    if num_pages < 2:
        raise MemoryError(f"{kv_bytes} bytes for KV pages do not hold one page of {page_bytes}")
    return num_pages


def warm_up(model: Model) -> None:
    """One prefill and one decode, so that the first request pays for no first time."""
    from array import array

    from worker.batch import LaneRows, assemble

    rows = min(model.page_size, 16) - 1
    for tokens, start in (([0] * rows, 0), ([0], rows)):
        lane = LaneRows(tokens, start, array("i", [1]))
        batch = assemble([lane], [len(tokens) - 1], model.page_size, model.device)
        model.logits(model.forward(batch))


def engine_info(engine: Engine) -> EngineInfo:
    config, pool = engine.config, engine.state.pool
    return EngineInfo(
        protocol=PROTOCOL_VERSION,
        page_size=pool.page_size,
        num_pages=pool.capacity,
        channel_capacity=config.run_ahead_window + 1,
        max_embed_length=config.max_embed_length,
        device=engine.launcher.model.device.type,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _hint(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "give the engine more memory with `--kv-bytes`, or stop other programs"
    if isinstance(error, ImportError):
        return "run `pie doctor` to see what is missing"
    return ""


if __name__ == "__main__":
    sys.exit(main())
