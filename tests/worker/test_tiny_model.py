"""The stand-in model keeps what fast tests lean on: equal bits however the work is batched."""

import numpy as np
import pytest
import torch

from tests.model.drive import Driver, Lane
from worker.model import load
from worker.model.base import MaskedLane
from worker.model.tiny import TinyModel


@pytest.fixture
def driver() -> Driver:
    return Driver(load("tiny", name="tiny", page_size=4), num_pages=64)


PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1], [8], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7, 4, 9]]


def test_a_lane_computes_the_same_bits_alone_and_among_others(driver: Driver) -> None:
    alone = [driver.step([(Lane(), prompt)])[0] for prompt in PROMPTS]
    together = driver.step([(Lane(), prompt) for prompt in PROMPTS])
    assert torch.equal(torch.stack(alone), together)


def test_a_prompt_computes_the_same_bits_whole_and_in_chunks(driver: Driver) -> None:
    whole = driver.step([(Lane(), PROMPTS[3])])
    lane = Lane()
    driver.step([(lane, PROMPTS[3][:5])])
    assert torch.equal(whole, driver.step([(lane, PROMPTS[3][5:])]))


def test_equal_seeds_give_equal_models_and_the_history_matters(driver: Driver) -> None:
    twin = Driver(load("tiny", name="tiny", page_size=4), num_pages=64)
    first = [driver.greedy([prompt], 12)[0] for prompt in PROMPTS]
    assert first == [twin.greedy([prompt], 12)[0] for prompt in PROMPTS]
    assert all(len(set(tokens)) > 4 for tokens in first)
    assert driver.greedy([[5, 9]], 8) != driver.greedy([[1, 9]], 8)


def test_a_copied_partial_page_continues_as_the_original(driver: Driver) -> None:
    lane = Lane()
    driver.step([(lane, PROMPTS[0])])
    fork = driver.fork(lane)
    driver.step([(lane, [11, 12])])
    expected = driver.step([(Lane(), PROMPTS[0] + [7])])
    assert torch.equal(driver.step([(fork, [7])]), expected)


def test_a_row_with_slot_minus_one_writes_nothing(driver: Driver) -> None:
    lane = Lane()
    driver.step([(lane, PROMPTS[0])])
    before = driver.model._kv.clone()
    driver.step([(lane, [7])], write=False)
    assert torch.equal(driver.model._kv, before)


def test_no_readout_rows_give_no_hidden_states(driver: Driver) -> None:
    assert driver.step([(Lane(), PROMPTS[0])], readout=False).shape == (0, 64)


def reference(
    model: TinyModel, ids: list[int], positions: list[int], seen: np.ndarray
) -> np.ndarray:
    """The tiny model's logits of all rows at once, in numpy: `seen` `[rows, rows]`."""

    def normalised(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def rotated(x: np.ndarray) -> np.ndarray:
        angles = np.array(positions)[:, None, None] * 10_000.0 ** -(np.arange(0, 8, 2) / 8)
        a, b = x[..., :4], x[..., 4:]
        sin, cos = np.sin(angles), np.cos(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = model._embedding.numpy().astype(np.float64)[ids]
    for layer in model._layers:
        weights = {name: value.numpy().astype(np.float64) for name, value in vars(layer).items()}
        h = normalised(x)
        query = rotated((h @ weights["query"].T).reshape(-1, 4, 8))
        key = rotated((h @ weights["key"].T).reshape(-1, 2, 8)).repeat(2, axis=1)
        value = (h @ weights["value"].T).reshape(-1, 2, 8).repeat(2, axis=1)
        mixed = np.exp(np.einsum("qhd,khd->hqk", query, key) / 8**0.5) * seen
        mixed = mixed / np.maximum(mixed.sum(-1, keepdims=True), 1e-300)
        x = x + np.einsum("hqk,khd->qhd", mixed, value).reshape(-1, 32) @ weights["output"].T
        h = normalised(x)
        gate = h @ weights["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weights["up"].T)) @ weights["down"].T
    return normalised(x) @ model._head.numpy().astype(np.float64).T


def test_random_masks_give_what_numpy_gives(driver: Driver) -> None:
    generator = np.random.default_rng(3)
    for ids in PROMPTS:
        seen = generator.random((len(ids), len(ids))) < 0.5  # of later rows too
        seen[-1] = False  # attends nothing
        wanted = reference(driver.model, ids, list(range(len(ids))), seen)
        work = [(Lane(), PROMPTS[0]), (Lane(), ids)]
        got = driver.step_masked(work, {1: torch.from_numpy(seen)})[len(PROMPTS[0]) :]
        assert np.abs(got.numpy() - wanted).max() < 1e-3


def test_a_causal_mask_gives_the_bits_of_no_mask(driver: Driver) -> None:
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    wanted = driver.every_row([(Lane(), PROMPTS[0])], [])
    assert torch.equal(driver.step_masked([(Lane(), PROMPTS[0])], {0: causal}), wanted)


def test_a_lane_that_sees_pages_of_another_continues_it(driver: Driver) -> None:
    """And so does one that reads what the other lane writes in the same forward."""
    wanted = driver.step([(Lane(), PROMPTS[0])])
    prefix, rest = Lane(), Lane()
    batch = driver.batch([(prefix, PROMPTS[0][:7]), (rest, PROMPTS[0][7:])])
    batch.positions = torch.arange(9)
    seen = torch.zeros(2, 3 * 4, dtype=torch.bool)
    seen[:, 4 : 4 + 7] = True
    seen[0, :1], seen[1, :2] = True, True
    batch.masked = [MaskedLane(1, rest.pages + prefix.pages, seen)]
    batch.readout_rows = torch.tensor([8])
    got = driver.model.logits(driver.model.forward(batch))
    assert torch.allclose(got, wanted, atol=1e-4)


def test_cleared_pages_are_empty(driver: Driver) -> None:
    lane, other = Lane(), Lane()
    driver.step([(lane, PROMPTS[0]), (other, PROMPTS[3])])
    before = driver.model._kv.clone()
    driver.model.clear_pages(lane.pages)
    kv, before = (x.unflatten(2, (-1, 4)) for x in (driver.model._kv, before))
    assert (kv[:, :, lane.pages] == 0).all()
    assert torch.equal(kv[:, :, other.pages], before[:, :, other.pages])
