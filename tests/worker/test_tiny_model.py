"""The stand-in model keeps what fast tests lean on: equal bits however the work is batched."""

import pytest
import torch

from tests.model.drive import Driver, Lane
from worker.model import load


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
