"""What an earlier owner left in a page reaches nobody, be it NaN: although kernels read a lane's
last page to its end, and multiply what lies past the lane's own by zero (vLLM's on the CPU do)."""

import pytest
import torch

from tests.worker import bench as benches
from tests.worker.bench import Bench, Chat, greedy_tokens
from tests.worker.test_memory import prompts, run_all
from worker.model.tiny import TinyModel


class ReachingModel(TinyModel):
    """As the tiny model, but lanes without a mask read their last page to its end, times zero."""

    def forward(self, batch):
        hidden = super().forward(batch)
        pages = self._kv.unflatten(2, (-1, self.page_size))
        masked = {lane.lane for lane in batch.masked}
        reach = torch.zeros(batch.num_rows)
        for lane in set(range(batch.num_lanes)) - masked:
            rows = slice(batch.query_indptr[lane], batch.query_indptr[lane + 1])
            count = -(-int(batch.kv_lens[lane]) // self.page_size)
            reach[rows] = 0 * pages[:, :, batch.page_table[lane, :count].long()].sum()
        return hidden + reach[batch.readout_rows, None]


def poison(bench: Bench) -> None:
    """Every page that nobody holds, and that nobody may find, is NaN from now on."""
    model, pool = bench.engine.launcher.model, bench.state.pool
    held = [page for _, page, _ in pool.moves]  # something is still to be read from it
    free = [page for page in pool._free if pool.was_used[page] and page not in held]
    model._kv.unflatten(2, (-1, model.page_size))[:, :, free] = torch.nan


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch):
    def load(path, *, name, page_size, max_context):
        return ReachingModel(page_size=page_size, context_length=max_context)

    def make(**changes) -> Bench:
        monkeypatch.setattr(benches, "load", load)
        bench, step = Bench(**changes), Bench.step
        monkeypatch.undo()

        def poisoned() -> bool:
            poison(bench)
            return step(bench)

        bench.step = poisoned
        return bench

    return make


def test_a_page_that_was_used_is_empty_for_its_next_owner(make_bench) -> None:
    bench = make_bench(num_pages=9, prefix_cache=False)
    first = Chat(bench.client(), [1, 2, 3, 4, 5, 6, 7])
    first.start()
    bench.settle()
    first.client.say(benches.m.DropWorkingSet(first.set))
    bench.settle()
    second = Chat(bench.client(), [9, 8, 7, 6, 5])
    second.start()
    second.run(6)
    bench.settle()
    assert second.tokens == greedy_tokens([9, 8, 7, 6, 5], 7)


@pytest.mark.parametrize("overlap", [False, True])
def test_pages_that_go_round_under_pressure_bring_nothing_along(make_bench, overlap) -> None:
    bench = make_bench(num_pages=25, tenure_waves=4, idle_waves=2, row_budget=16, overlap=overlap)
    clients = [bench.client() for _ in range(3)]
    chats = [Chat(clients[i % 3], prompt) for i, prompt in enumerate(prompts(12))]
    run_all(bench, chats, 13)
    assert bench.state.swap._next > 0, "nobody was suspended"
    for chat, prompt in zip(chats, prompts(12)):
        assert chat.tokens == greedy_tokens(prompt, 13)


def test_pages_that_were_never_used_are_not_touched(make_bench) -> None:
    bench = make_bench(num_pages=64)
    cleared: list[int] = []
    bench.engine.launcher.model.clear_pages = cleared.extend
    chat = Chat(bench.client(), list(range(1, 10)))
    chat.start()
    chat.run(6)
    bench.settle()
    assert cleared == []
