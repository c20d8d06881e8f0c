"""The torch executor agrees with the vectors and with the numpy reference, alone and stacked."""

import numpy as np
import pytest
import torch

from inferlet.testing.definitions import DEFINITIONS
from ipc.eta.check import infer
from ipc.eta.ops import BY_NAME, EFFECT, SOURCE, TABLE
from ipc.types import DType, TensorType
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


def called(name, operands, *types, **attrs):
    result = infer(BY_NAME[name], types, attrs)
    return KERNELS[name](Call(types, result, attrs, torch.device("cpu")), *operands)


@pytest.mark.parametrize("shape", [(1, 7, 33), (3, 5, 7), (16, 129, 257), (33, 576, 1001)])
@pytest.mark.parametrize("name", ["matmul", "mm"])
def test_a_product_has_the_same_bits_alone_and_in_company(name, shape):
    m, k, n = shape
    draws = torch.Generator().manual_seed(7)
    a = torch.randn(5, m, k, generator=draws)
    b = torch.randn(5, *((k, n) if name == "matmul" else (n, k)), generator=draws)
    operands = (a, b) if name == "matmul" else (b, a)
    types = [TensorType(DType.f32, tuple(x.shape[1:])) for x in operands]
    stacked = called(name, operands, *types)
    for i in range(5):
        alone = called(name, [x[i : i + 1].clone() for x in operands], *types)
        assert torch.equal(stacked[i : i + 1], alone)
        shared = called(name, [operands[0], operands[1][i : i + 1]], *types)
        assert torch.equal(shared[i : i + 1], alone)


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_a_scatter_adds_in_the_order_of_its_indices(on_host, rest, monkeypatch):
    monkeypatch.setattr(Call, "on_host", property(lambda self: on_host))
    draws = torch.Generator().manual_seed(1)
    base = torch.randn(2, 7, *rest, generator=draws)
    index = torch.randint(-1, 9, (2, 600), generator=draws, dtype=torch.int32)
    values = torch.randn(2, 600, *rest, generator=draws) * 1e6
    want = base.clone()
    for instance in range(2):
        for at, place in enumerate(index[instance].tolist()):
            if 0 <= place < 7:
                want[instance, place] += values[instance, at]
    types = [
        TensorType(DType.f32, (7, *rest)),
        TensorType(DType.i32, (600,)),
        TensorType(DType.f32, (600, *rest)),
    ]
    assert torch.equal(called("scatter_add", (base, index, values), *types), want)
