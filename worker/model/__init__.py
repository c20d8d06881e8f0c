"""Models that the worker can run: `load` makes one.

vLLM lives in `vllm_*.py` and is imported by `load` only.
"""

from __future__ import annotations

from pathlib import Path

from worker.model import vllm_environment
from worker.model.base import Batch, Model, Progress

__all__ = ["Batch", "Model", "Progress", "load"]

#: `load("tiny")` gives the test tier's model: random weights, no vLLM, ready at once.
TINY = "tiny"


def load(
    path: str,
    *,
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    max_context: int | None = None,
    page_size: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """Loads the model in the folder `path`.

    `dtype` "auto" is float32 on the CPU and bfloat16 on CUDA; `device` "auto" is what the installed
    vLLM runs on. `max_context` may shorten the model's own context length, never lengthen it.
    `page_size` None is what the attention kernels like best. The first call imports vLLM, which
    takes from 5 to 60 seconds.
    """
    if path == TINY:
        from worker.model.tiny import TinyModel

        limits = {"page_size": page_size, "context_length": max_context}
        chosen = {key: value for key, value in limits.items() if value is not None}
        return TinyModel(name=name, **chosen)
    if not (Path(path) / "config.json").is_file():
        raise ValueError(
            f"{path} is no model folder: it has no config.json (`pie models list` shows models)"
        )
    report = progress or (lambda share, what: None)
    vllm_environment.prepare()
    with vllm_environment.stdout_on_stderr():
        report(0.0, "importing vLLM")
        from worker.model.vllm_model import load_vllm

        return load_vllm(
            path,
            name=name,
            dtype=dtype,
            device=device,
            max_context=max_context,
            page_size=page_size,
            progress=report,
        )
