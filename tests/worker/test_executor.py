"""The torch executor agrees with the vectors and with the numpy reference, alone and stacked."""

import numpy as np
import pytest
import torch

from inferlet.testing.definitions import DEFINITIONS
from ipc.eta.ops import EFFECT, SOURCE, TABLE
from ipc.types import DType
from tests.eta_support import (
    OP_VECTORS,
    VECTORS,
    agree,
    disagreements,
    is_error,
    slot_types,
    stage_of,
    traced,
)
from worker.eta import executor, random
from worker.eta.kernels import KERNELS, Call


def to_torch(value: np.ndarray) -> torch.Tensor:
    """An array in the executor's storage: u32 and bf16 by their bits."""
    if value.dtype == np.uint32:
        return torch.from_numpy(value.view(np.int32).copy())
    if value.dtype == np.uint16:
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(value.copy())


def to_numpy(value: torch.Tensor, dtype: DType) -> np.ndarray:
    value = value.contiguous().numpy()
    return value.view(np.uint32) if dtype == DType.u32 else value


def run_stacked(stage, fronts, count):
    """`fronts[slot]` is `[count, *shape]` in numpy; results come back the same way."""
    compiled = executor.compile(stage.program, slot_types(stage), {}, "cpu")
    constants = executor.constant_tensors(stage.program, stage.constants)
    given = {slot: to_torch(value) for slot, value in fronts.items()}
    output = compiled.run(count, given, {}, constants)
    types = [made.dtype for made in compiled.result_types]
    return [to_numpy(value, dtype) for value, dtype in zip(output.results, types, strict=True)]


def test_every_op_has_a_kernel_and_a_definition():
    names = {op.name for op in TABLE if not op.traits & {EFFECT, SOURCE}}
    assert names == set(KERNELS) == set(DEFINITIONS)


@pytest.mark.parametrize(
    "case", [case for case in OP_VECTORS if not is_error(case)], ids=lambda case: case["id"]
)
def test_executor_satisfies_the_vector_for_each_of_three_instances(case):
    stage = traced(stage_of(case))
    fronts = {
        slot: np.repeat(channel.front[None], 3, 0) for slot, channel in enumerate(stage.channels)
    }
    results = run_stacked(stage, fronts, 3)
    for instance in range(3):
        assert disagreements(case, [result[instance] for result in results]) == []


@pytest.mark.parametrize(
    "case", VECTORS["rng"], ids=lambda case: f"{case['key']}-{case['counter']}"
)
def test_generator_draws_the_published_numbers(case):
    state = to_torch(np.array([[case["key"], case["counter"]]], np.uint32))
    j = torch.tensor(case["j"])
    seed = random.seeds(state)
    assert int(seed) % (1 << 64) == int(case["seed"], 16)
    assert agree(random.uniform(seed, j).numpy(), np.array(case["u"], np.float32), exact=True)
    assert torch.equal(random.uniform_on_device(seed, j), random.uniform(seed, j))
    assert agree(random.gumbel(seed, j).numpy(), np.array(case["gumbel"], np.float32), exact=False)


@pytest.mark.parametrize(
    "case", [case for case in OP_VECTORS if not is_error(case)], ids=lambda case: case["id"]
)
def test_the_branches_of_a_device_satisfy_the_vector_too(case, monkeypatch):
    monkeypatch.setattr(Call, "on_host", property(lambda self: False))
    stage = traced(stage_of(case))
    fronts = {slot: channel.front[None] for slot, channel in enumerate(stage.channels)}
    results = run_stacked(stage, fronts, 1)
    assert disagreements(case, [result[0] for result in results]) == []
