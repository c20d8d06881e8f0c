"""The numpy reference is the definition: it satisfies every vector of the contract."""

import numpy as np
import pytest

from inferlet.errors import InferletError, TraceError
from inferlet.testing import reference
from inferlet.testing.row_definitions import uniform
from tests.eta_support import (
    OP_VECTORS,
    VECTORS,
    FakeChannel,
    agree,
    disagreements,
    is_error,
    slot_types,
    stage_of,
    traced,
)


def run(stage):
    fronts = {slot: channel.front for slot, channel in enumerate(stage.channels)}
    constants = reference.constant_arrays(stage.program, stage.constants)
    return reference.run(stage.program, slot_types(stage), fronts, {}, constants)


@pytest.mark.parametrize("case", OP_VECTORS, ids=lambda case: case["id"])
def test_reference_satisfies_the_vector(case):
    if not is_error(case):
        registers, results = run(traced(stage_of(case)))
        assert (registers, disagreements(case, results)) == ({}, [])
        return
    name = case["expect"]["error"]
    wanted = Exception if name == "*" else {"TraceError": TraceError}.get(name, InferletError)
    with pytest.raises(wanted):
        traced(stage_of(case))


@pytest.mark.parametrize(
    "case", VECTORS["rng"], ids=lambda case: f"{case['key']}-{case['counter']}"
)
def test_reference_draws_the_published_numbers(case):
    state = np.array([case["key"], case["counter"]], np.uint32)
    u = uniform(state, max(case["j"]) + 1)[case["j"]]
    assert agree(u, np.array(case["u"], np.float32), exact=True)
    assert agree(-np.log(-np.log(u)), np.array(case["gumbel"], np.float32), exact=False)


def test_a_register_is_absent_after_a_take_and_after_a_read():
    taken, peeked, put = (FakeChannel.of(np.int32([i])) for i in range(3))

    def stage():
        put.put(taken.take() + peeked.read())

    registers, results = run(traced(stage))
    assert list(registers) == [2] and registers[2].tolist() == [1] and results == []


def test_a_take_after_a_put_gives_the_put_value():
    channel = FakeChannel.of(np.int32([7]))

    def stage():
        channel.put(5)
        return channel.take()

    registers, results = run(traced(stage))
    assert registers == {0: 5} and results[0].tolist() == [5]
