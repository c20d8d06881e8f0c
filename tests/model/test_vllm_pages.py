"""An engine on a real model: what sequences leave in their pages reaches no other sequence."""

import pytest
import torch

from tests.bench.state import FastBench
from tests.model.drive import Driver
from tests.worker.bench import CONFIG, Chat

pytestmark = pytest.mark.model
NUM_PAGES = 64
PROMPTS = [[504, 2725, 282, 4649, 314], list(range(100, 140)), [9, 8, 7]]


def answers(bench: FastBench) -> list[list[int]]:
    """Of chats that run together, each on pages that are partly filled at any time."""
    chats = [Chat(bench.client(), prompt) for prompt in PROMPTS]
    for chat in chats:
        chat.start()
        chat.run(5)
    bench.settle()
    tokens = [chat.tokens for chat in chats]
    for chat in chats:
        bench.end(chat.client)
    return tokens


def test_pages_full_of_nan_are_handed_out_clean(driver: Driver) -> None:
    """Without clearing them, every token would be the first of the vocabulary."""
    bench = FastBench(driver.model, NUM_PAGES, CONFIG)
    wanted = answers(bench)
    assert all(len(set(tokens)) > 1 for tokens in wanted)
    pool = bench.state.pool
    pool.drop_cached()
    pool.was_used = bytearray(b"\1" * NUM_PAGES)
    pages = slice(1, NUM_PAGES)
    for kv in driver.model._kv:
        kv[:, pages] = torch.nan
    try:
        assert answers(bench) == wanted
    finally:
        for kv in driver.model._kv:
            kv[:, pages] = 0
