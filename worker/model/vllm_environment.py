"""The process around vLLM: settings that stand before its import, and a stdout that stays clean.

Imports no vLLM, so it can be used before it. A setting that the user has made is left as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

SETTINGS = {
    # Models are local folders: nothing is ever looked up on a network.
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    # Split KV sums one row's attention in parts whose number depends on the rest of the batch:
    # a lane's result must not.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
    # One process talks to itself; no need for the host's name to resolve.
    "GLOO_SOCKET_IFNAME": "lo",
}


def prepare() -> None:
    """Makes the settings. To be called before the first import of vLLM."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # Says at warning level that Triton is missing, which a CPU does not need.
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Sends what is written to stdout, by C++ libraries too, to stderr meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
