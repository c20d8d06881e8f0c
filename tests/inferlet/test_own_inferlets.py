"""The repository's own inferlets at inputs that a person types, on the fake engine."""

import pytest

from inferlet import testing
from inferlets import sample
from tests.inferlet.programs import greedy


def follow(tokens: list[int]) -> int:
    return tokens[-1] + 1


@pytest.mark.parametrize("seed", [1, 2])
def test_temperature_0_is_greedy_for_every_seed(seed):
    words = {"prompt": "abc", "max_tokens": 4}
    value = testing.run(sample.main, words | {"seed": seed, "temperature": 0})
    assert value["tokens"] == testing.run(greedy.main, words)["tokens"]


@pytest.mark.parametrize("temperature", [-1, float("nan")])
def test_a_temperature_below_0_is_refused(temperature):
    words = {"prompt": "abc", "max_tokens": 4, "temperature": temperature}
    with pytest.raises(ValueError, match="temperature is .*; it is at least 0, and 0 is greedy"):
        testing.run(sample.main, words, model=follow)
