"""A test's model that is wrong ends the test at once, in words."""

import asyncio

import numpy as np
import pytest

from inferlet import Pipeline, WorkingSet, session
from inferlet.testing import run, run_together
from tests.inferlet.support import appending, greedy


async def one_token() -> int:
    fwd, result = appending(WorkingSet(), [1, 2], greedy())
    Pipeline().submit(fwd)
    return await result


async def several_branches() -> list[int]:
    return await asyncio.gather(one_token(), one_token())


async def submitted_and_left() -> None:
    Pipeline().submit(appending(WorkingSet(), [1], greedy())[0])
    await asyncio.sleep(0)


MODELS = {
    "it raises": (lambda tokens: 1 // 0, ZeroDivisionError, "by zero"),
    "an id too large": (lambda tokens: 9999, ValueError, "gave token id 9999; ids are 0 to 258"),
    "an id below 0": (lambda tokens: -1, ValueError, "gave token id -1; ids are 0 to 258"),
    "too few logits": (lambda tokens: np.zeros(10), ValueError, r"shape \[10\].* shape \[259\]"),
    "two rows": (lambda tokens: np.zeros((2, 259)), ValueError, r"\[2, 259\].* \[259\]"),
    "nothing": (lambda tokens: None, ValueError, "gave None; it gives f32 logits"),
    "half an id": (lambda tokens: 7.5, ValueError, "gave 7.5; it gives f32 logits"),
}


@pytest.mark.parametrize("main", [one_token, several_branches])
@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_model_ends_the_test_with_its_error(name, main):
    model, kind, words = MODELS[name]
    with pytest.raises(kind, match=words):
        run(main, model=model)


def test_also_when_nothing_is_awaited_of_the_fire():
    with pytest.raises(ZeroDivisionError):
        run(submitted_and_left, model=lambda tokens: 1 // 0)


def test_also_among_inferlets_that_wait_for_each_other():
    async def waits() -> None:
        await session.receive()

    with pytest.raises(ZeroDivisionError):
        run_together({"a": (one_token, {}), "b": (waits, {})}, model=lambda tokens: 1 // 0)


def test_a_model_never_sees_an_empty_history():
    async def main() -> int:
        fwd, result = appending(WorkingSet(), [3, -1], greedy())
        fwd.readout([0, 1])
        Pipeline().submit(fwd)
        return (await result).tolist()

    assert run(main, model=lambda tokens: tokens[-1]) == [3, 0]


def test_numpy_ids_and_integer_logits_are_taken():
    assert run(one_token, model=lambda tokens: np.int64(7)) == 7
    assert run(one_token, model=lambda tokens: np.arange(259)) == 258


def test_a_result_that_a_run_would_refuse_is_refused_in_the_same_words():
    with pytest.raises(TypeError, match="`main` returned what JSON cannot hold: set at main's"):
        run(lambda: {1, 2})
