"""The ways around a full sort against the definitions, which sort: long rows and short ones, ties
at the threshold, p on a boundary, and rows with hardly a number in them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet.testing.definitions import Call as Definition
from inferlet.testing.definitions import evaluate
from ipc.types import DType, TensorType
from worker.eta import ranking  # noqa: F401 - registers its kernels
from worker.eta.kernels import KERNELS, Call

CPU = torch.device("cpu")
KINDS = (
    "narrow", "plain", "flat", "nearly flat", "ties", "dyadic", "none", "one", "few", "zeros",
    "special", "huge", "missing", "sparse",
)  # fmt: skip
LENGTHS = (1, 5, 8, 33, 1000, 1025, 4096, 49_152)
LIMITS = (0.0, -1.0, 1e-30, 0.25, 0.5, 0.75, 0.95, 0.9999995, 1.0, 2.0, 1e9, np.inf, np.nan)


def row(kind: str, length: int, random: np.random.Generator) -> np.ndarray:
    x = random.normal(0, 3, length).astype(np.float32)
    some = random.integers(0, length, 1 + length // 50)
    match kind:
        case "narrow":
            x[some[:20]] += 15
        case "flat":
            x[:] = 1.5
        case "nearly flat":
            x *= np.float32(1e-9)
        case "ties":
            x = random.integers(-3, 3, length).astype(np.float32)
        case "dyadic":
            x = (random.integers(-2, 1, length) * np.log(2)).astype(np.float32)
        case "none":
            x[:] = -np.inf
        case "one":
            x[:], x[some[0]] = -np.inf, 3.0
        case "few":
            kept = x[some].copy()
            x[:] = -np.inf
            x[some] = kept
        case "zeros":
            x = np.where(random.random(length) < 0.5, np.float32(0.0), np.float32(-0.0))
        case "special":
            x[some] = random.choice([np.nan, np.inf, -np.inf, -0.0], len(some))
        case "missing":
            x[:], x[some[1:]] = np.nan, -np.inf
        case "sparse":
            x[:], x[some] = 0.0, random.integers(1, 4, len(some))
        case "huge":
            x *= np.float32(1e37)
    return x


def boundary(mass: np.ndarray, at: int) -> float:
    """A prefix sum of the ranked mass, to the nearest f32; not one that only zeros add to."""
    ranked = np.sort(mass[~np.isnan(mass)])[::-1].astype(np.float64)
    sums = np.concatenate(([0.0], ranked.cumsum()))
    with np.errstate(over="ignore"):
        return float(np.float32(sums[at % (1 + np.count_nonzero(ranked))]))


@st.composite
def cases(draw):
    """Rows of one length and of several kinds, and a limit for each, some on a boundary."""
    length = draw(st.sampled_from(LENGTHS))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    limits = [
        draw(st.one_of(st.sampled_from(LIMITS), st.integers(0, 2**16), st.floats(0, 1, width=32)))
        for _ in kinds
    ]
    return np.stack([row(kind, length, random) for kind in kinds]), limits


def limits_of(masses: np.ndarray, given_limits: list) -> np.ndarray:
    """Integers stand for boundaries."""
    return np.array(
        [
            boundary(mass, limit) if isinstance(limit, int) else limit
            for mass, limit in zip(masses, given_limits, strict=True)
        ],
        np.float32,
    )


def both(name: str, args: list[np.ndarray], dtype: DType, attrs: dict) -> tuple:
    """What the host's kernel makes of some rows together, and the definition of each row."""
    row_types = [TensorType(DType.f32, args[0].shape[1:])]
    call = Call((*row_types, *[TensorType(DType.f32, ())] * 2), TensorType(dtype, ()), attrs, CPU)
    got = KERNELS[name](call, *(torch.from_numpy(arg.view(np.int32)
                        if arg.dtype == np.uint32 else arg) for arg in args)).numpy()  # fmt: skip
    definition = Definition(row_types, TensorType(dtype, ()), attrs)
    want = np.stack([evaluate(name, definition, list(one)) for one in zip(*args, strict=True)])
    return got, want


def masses(logits: np.ndarray) -> np.ndarray:
    definition = Definition([], TensorType(DType.f32, logits.shape), {})
    return evaluate("softmax", definition, [logits])


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_a_nucleus_is_the_definitions_to_the_last_bit(case, key):
    logits, limits = case
    p = limits_of(masses(logits), limits)
    p[np.abs(p - 1) < 2e-6] = 0.5  # the whole mass: the contract lets either answer conform
    state = np.array([[key, counter] for counter in range(len(logits))], np.uint32)
    got, want = both("nucleus_sample", [logits, p, state], DType.i32, {})
    assert got.tolist() == want.tolist()


def test_the_lowest_of_equal_scores_is_chosen_also_below_the_largest_logit():
    # So large that noise is rounded to steps of 4: the smaller logit may catch up.
    logits = np.full((300, 2000), -np.inf, np.float32)
    logits[:, :3] = 4e7 - 4, 4e7, 4e7 - 4
    state = np.stack([np.array([5, counter], np.uint32) for counter in range(300)])
    p = np.full(300, 0.99, np.float32)
    got, want = both("nucleus_sample", [logits, p, state], DType.i32, {})
    assert got.tolist() == want.tolist() and 0 in want and 1 in want


@pytest.mark.parametrize("others", [0.0, -np.inf], ids=["all", "few"])
def test_the_largest_logit_is_kept_beside_a_lower_index_of_equal_mass(others):
    logits = np.full((100, 2000), others, np.float32)
    logits[:, 3], logits[:, 700] = 0.0, 1e-9  # `exp` rounds the difference away
    state = np.stack([np.array([5, counter], np.uint32) for counter in range(100)])
    got, want = both("nucleus_sample", [logits, np.full(100, 1e-30, np.float32), state],
                     DType.i32, {})  # fmt: skip
    assert got.tolist() == want.tolist() and len(set(got.tolist())) == 2


@pytest.mark.parametrize("length", [1025, 49_152])
def test_mass_that_reaches_the_limit_exactly_is_enough(length):
    x = row("sparse", length, np.random.default_rng(1))
    ranked = np.sort(x)[::-1]
    threes, twos, more = (int((ranked >= least).sum()) for least in (3, 2, 1))
    counts = [at + by for at in (threes, twos, more, threes // 2, more - 5) for by in (-1, 0, 1)]
    limits = np.array([ranked[:count].sum() for count in counts], np.float32)
    got, want = both("cummass_le", [np.tile(x, (len(counts), 1)), limits], DType.bool_, {})
    assert (got == want).all()
    assert got.sum(-1).tolist() == [min(count, more) for count in counts]


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["softmax", "abs", "as it is"]))
def test_mass_is_cut_where_the_definition_cuts_it(case, kind):
    x, limits = case
    x = {"softmax": masses, "abs": np.abs, "as it is": lambda x: x}[kind](x)
    p = limits_of(x, limits)
    got, want = both("cummass_le", [x, p], DType.bool_, {})
    assert (got == want).all()


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 3000))
def test_the_top_of_a_row_is_the_definitions(case, k):
    x = case[0]
    got, want = both("top_k_indices", [x], DType.u32, {"k": min(k, x.shape[-1])})
    assert got.tolist() == want.tolist()


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 60_000))
def test_a_rank_is_the_definitions(case, k):
    x = case[0]
    call = Call(
        (TensorType(DType.f32, x.shape[1:]), TensorType(DType.i32, ())),
        TensorType(DType.bool_, x.shape[1:]), {}, CPU,
    )  # fmt: skip
    counts = torch.full((len(x),), k, dtype=torch.int32)
    got = KERNELS["rank_le"](call, torch.from_numpy(x), counts).numpy()
    definition = Definition([], TensorType(DType.bool_, x.shape[1:]), {})
    want = evaluate("rank_le", definition, [x, np.full(len(x), k)])
    assert (got == want).all()
