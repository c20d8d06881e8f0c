"""From a model folder to a vLLM module with its weights in place, without vLLM's engine.

Imported by `worker.model.load` only: importing vLLM takes from 5 to 60 seconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.platforms import current_platform

from worker.model.base import Progress

#: What the attention kernels like best: the CPU's want multiples of 32, the GPU's multiples of 16.
DEFAULT_PAGE_SIZE = {"cpu": 32, "cuda": 16}
#: Bounds for vLLM's own buffers. How large a batch gets is the scheduler's business: at most a full
#: wave, and beside it one pass whose rows may not be cut.
MAX_LANES, MAX_ROWS = 2048, 8192 + 2048


def make_config(
    path: str, *, dtype: str, device: str, max_context: int | None, page_size: int | None
) -> VllmConfig:
    """vLLM's configuration of the model in `path`; raises ValueError where it cannot be served."""
    platform = current_platform.device_type
    if device not in ("auto", platform):
        raise ValueError(
            f"device {device!r} asked for, but this installation of vLLM runs on {platform!r}"
        )
    if page_size is not None and page_size % 16:
        raise ValueError(f"page size {page_size}: attention kernels want a multiple of 16 slots")
    if dtype == "auto":
        dtype = "float32" if platform == "cpu" else "bfloat16"
    arguments = EngineArgs(
        model=path,
        tokenizer=path,
        skip_tokenizer_init=True,
        dtype=dtype,
        max_model_len=_context_length(path, max_context),
        block_size=page_size or DEFAULT_PAGE_SIZE.get(platform, 16),
        max_num_seqs=MAX_LANES,
        max_num_batched_tokens=MAX_ROWS,
        enforce_eager=True,
        enable_prefix_caching=False,
        use_tqdm_on_load=False,
    )
    return arguments.create_engine_config()


def _context_length(path: str, max_context: int | None) -> int | None:
    """The shorter of the model's own context length and `max_context`; None leaves it to vLLM."""
    config = json.loads((Path(path) / "config.json").read_text())
    own = config.get("text_config", config).get("max_position_embeddings")
    known = [length for length in (own, max_context) if length is not None]
    return min(known, default=None)


def load_module(config: VllmConfig, progress: Progress) -> nn.Module:
    """Builds the module and reads its weights. Must run inside `set_current_vllm_config`."""
    loader = _CountingLoader(config.load_config, progress)
    with _accelerator_optional():
        return loader.load_model(vllm_config=config, model_config=config.model_config)


@contextlib.contextmanager
def _accelerator_optional() -> Iterator[None]:
    """The loader empties the accelerator's cache, which raises where there is none."""
    if torch.accelerator.is_available():
        yield
        return
    kept = torch.accelerator.empty_cache
    torch.accelerator.empty_cache = lambda: None
    try:
        yield
    finally:
        torch.accelerator.empty_cache = kept


def join_world_of_one() -> None:
    """vLLM's layers ask a process group for their rank: here one process, no port, no file."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            current_platform.dist_backend,
            store=torch.distributed.HashStore(),
            rank=0,
            world_size=1,
        )
    init_distributed_environment(
        world_size=1, rank=0, local_rank=0, backend=current_platform.dist_backend
    )
    ensure_model_parallel_initialized(1, 1)


class _CountingLoader(DefaultModelLoader):
    """vLLM's own loader, which also says how much of the weight files it has read."""

    def __init__(self, load_config, progress: Progress) -> None:
        super().__init__(load_config)
        self._progress = progress

    def get_all_weights(
        self, model_config: ModelConfig, model: nn.Module
    ) -> Iterator[tuple[str, Tensor]]:
        folder = Path(model_config.model)
        files = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
        total, read = max(1, sum(file.stat().st_size for file in files)), 0
        for name, weight in super().get_all_weights(model_config, model):
            yield name, weight
            read += weight.nbytes
            self._progress(min(1.0, read / total), "reading weights")


__all__ = ["join_world_of_one", "load_module", "make_config", "set_current_vllm_config"]
