"""The served model computes what transformers does, however its rows are batched and paged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.model.drive import Driver, Lane
from worker.model import Model

pytestmark = pytest.mark.model

NUM_TOKENS = 64
TOLERANCE = 1e-3
CHUNK = 37
PROMPTS = [
    "The capital of France is",
    "Why is the sky blue?",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n",
    "1, 2, 3, 4,",
    "Dear Sir or Madam,\n\nI am writing to",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "A",
]
#: The step at which each prompt joins; the long one comes in chunks, among others that decode.
JOINS_AT = [0, 0, 0, 2, 3, 3, 5, 9]


@dataclass
class Sequence:
    """One lane's prompt, what is generated, and the logits of every generated token."""

    prompt: list[int]
    joins_at: int = 0
    chunk: int = 10_000
    lane: Lane = field(default_factory=Lane)
    tokens: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    def due(self) -> list[int]:
        """The rows of the next step."""
        done = self.lane.length
        return self.prompt[done : done + self.chunk] or self.tokens[-1:]

    def take(self, logits: Tensor) -> None:
        if self.lane.length >= len(self.prompt):
            self.logits.append(logits)
            self.tokens.append(int(logits.argmax()))


def generate(driver: Driver, sequences: list[Sequence], num_tokens: int) -> None:
    """Runs all sequences together, each from the step at which it joins, greedily."""
    step = 0
    while active := [s for s in sequences if len(s.tokens) < num_tokens]:
        joined = [s for s in active if s.joins_at <= step]
        logits = driver.step([(s.lane, s.due()) for s in joined])
        for sequence, row in zip(joined, logits):
            sequence.take(row)
        step += 1
    for sequence in sequences:
        driver.release(sequence.lane)


@pytest.fixture(scope="module")
def prompts(model_path: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    return [tokenizer.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def together(driver: Driver, prompts: list[list[int]]) -> list[Sequence]:
    """All prompts in the same ragged batches, prefill beside decode, the long one in chunks."""
    sequences = [Sequence(prompt, joins_at) for prompt, joins_at in zip(prompts, JOINS_AT)]
    sequences[6].chunk = CHUNK
    generate(driver, sequences, NUM_TOKENS)
    return sequences


def test_mixed_batches_give_the_tokens_and_logits_of_transformers(
    model_path: Path, together: list[Sequence]
) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    for sequence in together:
        ids = torch.tensor([sequence.prompt + sequence.tokens[:-1]])
        with torch.inference_mode():
            expected = reference(ids).logits[0, len(sequence.prompt) - 1 :]
        # With the same tokens before it, each next one is transformers' own greedy choice.
        assert expected.argmax(-1).tolist() == sequence.tokens
        assert (torch.stack(sequence.logits) - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("index", [0, 6, 7])
def test_a_lane_alone_gives_what_it_gives_among_others(
    driver: Driver, together: list[Sequence], index: int
) -> None:
    alone = Sequence(together[index].prompt)
    generate(driver, [alone], 16)
    assert alone.tokens == together[index].tokens[:16]
    difference = torch.stack(alone.logits) - torch.stack(together[index].logits[:16])
    assert difference.abs().max() <= TOLERANCE


def test_a_fork_in_the_middle_of_a_page_continues_like_its_origin(
    driver: Driver, prompts: list[list[int]]
) -> None:
    origin, other_word, word = Lane(), prompts[2][3], prompts[0][2]
    expected = driver.step([(origin, prompts[0])])
    driver.release(origin)
    driver.step([(origin, prompts[0][:-1])])
    assert origin.length % driver.model.page_size != 0
    fork = driver.fork(origin)
    # What the origin writes after the fork does not reach the fork.
    driver.step([(origin, [other_word, word])])
    assert torch.allclose(driver.step([(fork, prompts[0][-1:])]), expected, atol=TOLERANCE)
    driver.release(origin)
    driver.release(fork)


def test_copying_swaps_pages_when_each_is_the_others_destination(
    driver: Driver, prompts: list[list[int]]
) -> None:
    first, second = Lane(), Lane()
    driver.step([(first, prompts[0]), (second, prompts[1])])
    driver.model.copy_pages([(first.pages[0], second.pages[0]), (second.pages[0], first.pages[0])])
    first.pages, second.pages = second.pages, first.pages
    swapped = driver.step([(first, [11]), (second, [12])])
    driver.release(first)
    driver.release(second)
    driver.step([(first, prompts[0]), (second, prompts[1])])
    assert torch.equal(swapped, driver.step([(first, [11]), (second, [12])]))
    driver.release(first)
    driver.release(second)


def test_a_row_with_slot_minus_one_writes_nowhere(driver: Driver, prompts: list[list[int]]) -> None:
    lane = Lane()
    driver.step([(lane, prompts[1])])
    pages = [kv[:, :64].clone() for kv in driver.model._kv]
    driver.step([(lane, prompts[0])], write=False)
    after = [kv[:, :64] for kv in driver.model._kv]
    assert max(lane.pages) < 64
    assert all(torch.equal(before, now) for before, now in zip(pages, after))
    driver.release(lane)


def test_a_batch_may_read_out_no_row(driver: Driver, prompts: list[list[int]]) -> None:
    lane = Lane()
    hidden = driver.model.forward(driver.batch([(lane, prompts[0][:-1])], readout=False))
    assert hidden.shape == (0, driver.model.info.width)
    assert driver.model.logits(hidden).shape == (0, driver.model.info.output_vocab_size)
    later = driver.step([(lane, prompts[0][-1:])])
    driver.release(lane)
    assert torch.allclose(later, driver.step([(lane, prompts[0])]), atol=TOLERANCE)
    driver.release(lane)


def test_logits_are_float32_rows_of_the_whole_vocabulary(
    driver: Driver, prompts: list[list[int]]
) -> None:
    lane = Lane()
    logits = driver.step([(lane, prompts[0])])
    assert logits.dtype == torch.float32
    assert logits.shape == (1, driver.model.info.output_vocab_size)
    driver.release(lane)


def test_the_model_tells_its_facts(model: Model, model_path: Path) -> None:
    info = model.info
    assert (info.name, info.architecture, info.path) == ("smollm2", "llama", str(model_path))
    assert (info.vocab_size, info.output_vocab_size) == (49152, 49152)
    assert (info.layers, info.width, info.context_length) == (30, 576, 2048)
    assert info.outputs == ("logits", "hidden")
    assert (info.dtype, model.page_size, model.device.type) == ("float32", 32, "cpu")
    # K and V of 3 heads of 64 float32 in 30 layers.
    assert model.page_bytes() == 32 * 2 * 3 * 64 * 4 * 30


def test_loading_reports_progress_up_to_the_whole(
    model: Model, load_reports: list[tuple[float, str]]
) -> None:
    assert load_reports[0] == (0.0, "importing vLLM")
    shares = [share for share, what in load_reports if what == "reading weights"]
    assert shares == sorted(shares)
    assert 0.99 < shares[-1] <= 1.0


def test_allocated_pages_take_no_memory_until_they_are_written(driver: Driver) -> None:
    taken = 4096 * driver.model.page_bytes()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    assert resident < taken


def test_pages_are_allocated_once(driver: Driver) -> None:
    with pytest.raises(RuntimeError, match="allocated once"):
        driver.model.allocate(8)
