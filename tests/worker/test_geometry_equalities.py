"""Equal on the tiny model, to the last bit: ways of placing and masking that mean the same."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlet import ForwardPass, Pipeline, StateGeometry, WorkingSet, intrinsics
from inferlet.testing import Client, run_with
from tests.inferlet.programs import beam, greedy, guidance, sliding_window, speculative
from tests.worker import sdk_hub
from worker.model.tiny import TinyModel

PLAIN = {"prompt": "hello", "max_tokens": 7}


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    def make(info, function):
        return TinyModel(vocab_size=info.output_vocab_size, page_size=4)

    monkeypatch.setattr(sdk_hub, "FunctionModel", make)


def run(main, value=None):
    hub = sdk_hub.WorkerHub(Client())
    seen = asyncio.run(run_with(hub, main, value))
    hub.real.state.check_integrity()
    return seen


async def by_ways(case: dict) -> list:
    """The logits of the last row, after the tokens went in piece by piece in the given ways."""
    ws, pipe, other = WorkingSet(), Pipeline(), WorkingSet()
    start, seen = 0, None
    for size, way in case["pieces"]:
        tokens = case["tokens"][start : start + size]
        end = start + len(tokens)
        if not tokens:
            break
        fwd, rows, sets, indptr = ForwardPass(), list(tokens), [ws], [0, len(tokens)]
        if way == "beside":
            rows, sets, indptr = [*rows, 3, 4], [ws, other], [*indptr, len(rows) + 2]
        fwd.embed(rows, indptr=indptr)
        if way == "explicit":
            at = list(range(start, end))
            fwd.state(sets, StateGeometry(positions=at, slots=at, kv_len=[end], fold=[size]))
        else:
            fwd.state(sets, StateGeometry.folding())
        if way in ("masked", "beside"):
            width = end + 20
            causal = [[slot <= row for slot in range(width)] for row in range(start, end)]
            fwd.mask(causal + [[False] * width] * (len(rows) - len(tokens)))
        result = fwd.epilogue(lambda: intrinsics.output(0, "logits"))
        pipe.submit(fwd)
        seen, start = await result, end
        if way == "forked":
            ws = ws.fork(pipe)
    return [seen.tolist(), ws.folded()]


tokens = st.lists(st.integers(0, 99), min_size=1, max_size=12)
ways = st.sampled_from(["fold", "explicit", "masked", "beside", "forked"])


@settings(max_examples=12, deadline=None)
@given(tokens, st.lists(st.tuples(st.integers(1, 5), ways), min_size=1, max_size=4))
def test_any_way_of_the_same_rows_gives_the_same_logits(tokens, pieces):
    pieces = [*pieces, (12, "fold")]
    expected = run(by_ways, {"tokens": tokens, "pieces": [(12, "fold")]})
    assert run(by_ways, {"tokens": tokens, "pieces": pieces}) == expected


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**20))
def test_speculative_decoding_is_greedy_with_any_drafter(seed):
    expected = run(greedy.main, PLAIN)["tokens"]
    lookup = speculative.lookup
    try:
        speculative.lookup = lambda ids: [(seed + i * len(ids)) % 250 for i in range(seed % 4)]
        assert run(speculative.main, PLAIN)["tokens"] == expected
        known = [*b"hello", *expected, 0, 0, 0]
        speculative.lookup = lambda ids: known[len(ids) : len(ids) + 3]
        got = run(speculative.main, PLAIN)
        assert (got["tokens"], got["fires"]) == (expected, 2)
    finally:
        speculative.lookup = lookup


def test_the_examples_agree_with_greedy():
    expected = run(greedy.main, PLAIN)
    assert run(beam.main, {**PLAIN, "width": 1})["text"] == expected["text"]
    assert run(sliding_window.main, PLAIN)["tokens"] == expected["tokens"]
    assert run(guidance.main, {**PLAIN, "negative": "hello"})["tokens"] == expected["tokens"]
