"""Torch against the numpy definitions: random programs, long rows, and independence of company."""

import random as stdlib_random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet import eta
from inferlet.testing.definitions import Call, evaluate
from inferlet.testing.reference import run as run_reference
from ipc.eta.check import check
from ipc.eta.graph import Node
from ipc.eta.ops import SOURCE
from ipc.types import DType, TensorType
from tests.eta_programs import cell, program
from tests.eta_support import FakeChannel, agree, mass_is_close, slot_types, traced
from tests.worker.test_executor import run_stacked, to_numpy, to_torch
from worker.eta import executor, kernels

WIDE = 4096


def every_value(given_program, types, slots, fronts, count):
    compiled = executor.compile(given_program, slots, {}, "cpu")
    output = compiled.run(count, {slot: to_torch(v) for slot, v in fronts.items()}, {}, [])
    by_node = dict(zip(given_program.results, output.results, strict=True))
    return [to_numpy(by_node[node], made.dtype) for node, made in enumerate(types)]


def is_ambiguous(node: Node, args: list[np.ndarray]) -> bool:
    """Whether the contract lets backends differ here: a mass within 1e-6 of p."""
    if node.op.name != "nucleus_sample":
        return False
    call = Call([], TensorType(DType.f32, args[0].shape), {})
    rows = evaluate("softmax", call, [args[0]]).reshape(-1, args[0].shape[-1])
    limits = np.broadcast_to(args[1], rows.shape[:1])
    return any(mass_is_close(row, p) for row, p in zip(rows, limits, strict=True))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_a_random_program_agrees_with_the_definitions_node_by_node(seed, steps):
    random = stdlib_random.Random(seed)
    made_program, slots = program(random, steps)
    types = check(made_program, slots, {})
    fronts = {
        slot: np.stack([cell(random, made) for _ in range(2)]) for slot, made in enumerate(slots)
    }
    stacked = every_value(made_program, types, slots, fronts, 2)
    for instance in range(2):
        one = {slot: value[instance : instance + 1] for slot, value in fronts.items()}
        alone = every_value(made_program, types, slots, one, 1)
        for index, node in enumerate(made_program.nodes):
            assert agree(alone[index][0], stacked[index][instance], exact=True), node
            if SOURCE in node.op.traits:
                continue
            # Each op on torch's own operands: its errors do not add up, and indices are exact.
            args = [alone[arg][0] for arg in node.args]
            call = Call([types[arg] for arg in node.args], types[index], node.attr_map)
            want = evaluate(node.op.name, call, args)
            if not is_ambiguous(node, args):
                assert agree(alone[index][0], want, exact=False, atol=slack(args)), (node, args)


def slack(args: list[np.ndarray]) -> float:
    """Absolute error of a sum of terms that cancel: relative to the largest term."""
    floats = [np.abs(arg[np.isfinite(arg)]) for arg in args if arg.dtype == np.float32]
    largest = max((float(arg.max(initial=0.0)) for arg in floats), default=0.0)
    return 1e-6 * max(1.0, min(largest, 1e18) ** 2)


def rows_of(kind: str, count: int) -> np.ndarray:
    random = np.random.default_rng(7)
    if kind == "ties":
        return random.integers(0, 5, (count, WIDE)).astype(np.float32)
    if kind == "equal":
        return np.zeros((count, WIDE), np.float32)
    x = random.normal(0, 3, (count, WIDE)).astype(np.float32)
    if kind == "special":
        x[0, :100] = np.nan
        x[1] = -np.inf
        x[2] = np.nan
        x[3, 5] = np.inf
        x[4, :] = np.nan
        x[4, 9] = -np.inf
        x[5, 1:] = -np.inf
    return x


def agrees_with_reference(stage_function, fronts: list[np.ndarray], count: int) -> None:
    channels = [FakeChannel.of(front[0]) for front in fronts]
    stage = traced(lambda: stage_function(*(channel.read() for channel in channels)))
    order = [channels.index(channel) for channel in stage.channels]
    given_fronts = {slot: fronts[index] for slot, index in enumerate(order)}
    results = run_stacked(stage, given_fronts, count)
    for instance in range(count):
        one = {slot: value[instance] for slot, value in given_fronts.items()}
        _, want = run_reference(stage.program, slot_types(stage), one, {}, [])
        for got, expected in zip(results, want, strict=True):
            assert np.array_equal(got[instance], expected, equal_nan=got.dtype.kind == "f")


@pytest.fixture(params=["host", "device"])
def branch(request, monkeypatch):
    """The kernels' branch that may look at the data, and the one that may not."""
    if request.param == "device":
        monkeypatch.setattr(kernels.Call, "on_host", property(lambda self: False))


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "special"])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.999])
def test_a_nucleus_of_a_long_row_is_the_definitions(kind, top_p):
    logits = rows_of(kind, 6)
    state = np.stack([np.array([9, counter], np.uint32) for counter in range(6)])
    p = np.full((6,), top_p, np.float32)
    agrees_with_reference(eta.nucleus_sample, [logits, p, state], 6)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "special"])
@pytest.mark.parametrize("k", [1, 7, 1000])
def test_top_k_of_a_long_row_is_the_definitions(kind, k):
    agrees_with_reference(lambda x: eta.top_k(x, k), [rows_of(kind, 6)], 6)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "special"])
def test_mass_and_rank_of_a_long_row_are_the_definitions(kind):
    x = rows_of(kind, 6)
    limits = np.array([-1.0, 0.0, 0.5, 3.0, 100.0, 1e9], np.float32)
    counts = np.array([0, 1, 3, 50, 4095, 9999], np.int32)
    agrees_with_reference(lambda x, p: eta.cummass_le(x, p), [x, limits], 6)
    agrees_with_reference(lambda x, p: eta.cummass_le(eta.abs(x), p), [x, limits], 6)
    agrees_with_reference(lambda x, k: eta.rank_le(x, k), [x, counts], 6)


def test_a_whole_nucleus_is_a_sample_of_the_whole_row():
    logits = rows_of("plain", 6)
    state = np.stack([np.array([3, counter], np.uint32) for counter in range(6)])

    def both(x, s):
        return eta.nucleus_sample(x, 1.0, s), eta.gumbel_max(x, s)

    channels = [FakeChannel.of(logits[0]), FakeChannel.of(state[0])]
    stage = traced(lambda: both(*(channel.read() for channel in channels)))
    nucleus, whole = run_stacked(stage, {0: logits, 1: state}, 6)
    assert nucleus.tolist() == whole.tolist()


@pytest.mark.parametrize("name", ["rem", "div", "max_elem", "min_elem", "mul"])
def test_f32_arithmetic_is_exact_over_the_whole_range(name):
    random = np.random.default_rng(0)
    a, b = (
        (random.normal(0, 1, 999) * 10.0 ** random.uniform(-38, 38, 999)).astype(np.float32)
        for _ in range(2)
    )
    agrees_with_reference(getattr(eta, name), [a[None], b[None]], 1)


@pytest.mark.parametrize("name", ["sin", "cos", "exp", "log", "sqrt", "rsqrt", "recip"])
def test_f32_functions_agree_over_the_whole_range(name):
    random = np.random.default_rng(0)
    x = (random.normal(0, 1, (1, 999)) * 10.0 ** random.uniform(-38, 38, 999)).astype(np.float32)
    channel = FakeChannel.of(x[0])
    stage = traced(lambda: getattr(eta, name)(channel.read()))
    call = Call([TensorType(DType.f32, (999,))], TensorType(DType.f32, (999,)), {})
    want = evaluate(name, call, [x[0]])
    assert agree(run_stacked(stage, {0: x}, 1)[0][0], want, exact=False)


@pytest.mark.parametrize("count", [2, 5, 33])
def test_an_instance_does_not_depend_on_its_company(count):
    random = np.random.default_rng(count)
    logits = random.normal(0, 4, (count, 3001)).astype(np.float32)
    state = random.integers(0, 2**32, (count, 2), dtype=np.uint32)
    p = random.uniform(0, 1.1, count).astype(np.float32)

    def stage(x, p, s):
        q = eta.softmax(x)
        return (
            eta.nucleus_sample(x, p, s), eta.gumbel_max(x, s), eta.log_softmax(x), eta.entropy(q),
            eta.cummass_le(q, p), eta.l2norm(x), eta.cumsum(x), eta.exp(x), eta.log(x), eta.cos(x),
            eta.normal(s, 37), eta.rem(x, 0.7), eta.reduce_sum(x), *eta.top_k(x, 9),
        )  # fmt: skip

    channels = [FakeChannel.of(front[0]) for front in (logits, p, state)]
    recorded = traced(lambda: stage(*(channel.read() for channel in channels)))
    fronts = dict(enumerate((logits, p, state)))
    together = run_stacked(recorded, fronts, count)
    for instance in range(count):
        one = {slot: value[instance : instance + 1] for slot, value in fronts.items()}
        for alone, among in zip(run_stacked(recorded, one, 1), together, strict=True):
            assert agree(alone[0], among[instance], exact=True)


def test_results_and_registers_of_shared_values_have_every_instance():
    out = FakeChannel(DType.u32, (3,))

    def stage():
        out.put(eta.iota(3))
        return eta.iota(2)

    recorded = traced(stage)
    compiled = executor.compile(recorded.program, slot_types(recorded), {}, "cpu")
    output = compiled.run(4, {}, {}, [])
    assert output.registers[0].shape == (4, 3) and output.results[0].shape == (4, 2)
    assert compiled.fronts_needed == ()


def test_a_constant_pool_of_another_size_is_refused():
    recorded = traced(lambda: eta.constant([1, 2, 3]))
    with pytest.raises(ValueError, match="11 bytes; the program takes 12"):
        executor.constant_tensors(recorded.program, recorded.constants[:-1])


def test_constants_may_differ_between_instances():
    recorded = traced(lambda: eta.constant(2.0) * eta.constant(3.0))
    compiled = executor.compile(recorded.program, [], {}, "cpu")
    pools = [np.array([2, 3], "<f4").tobytes(), np.array([5, 7], "<f4").tobytes()]
    tensors = [executor.constant_tensors(recorded.program, pool) for pool in pools]
    constants = [torch.cat(pair) for pair in zip(*tensors, strict=True)]
    assert compiled.run(2, {}, {}, constants).results[0].tolist() == [6.0, 35.0]


def test_a_cell_is_reproducible_from_its_seed():
    made = TensorType(DType.f32, (4,))
    one, two = (cell(stdlib_random.Random(5), made) for _ in range(2))
    assert one.tobytes() == two.tobytes()
