"""One program has one identity, however it is written; what makes another program changes it."""

import json
from pathlib import Path

import pytest

from inferlet import *
from inferlet.runtime.identity import facts_of, identity_of
from ipc.eta.identity import ChannelFacts, PassFacts, Port, StageFacts, encode
from ipc.types import DType, TensorType
from tests.inferlet.support import appending, count_up, on_engine

GOLDEN = Path(__file__).parents[1] / "golden/identities.json"


def identity(make):
    """Identity of the pass that `make()` gives."""
    found = []

    @on_engine(count_up)
    async def run(hub):
        fwd = make()
        Pipeline().submit(fwd)
        bound = fwd._bound
        found.append((identity_of(bound).hex(), encode(facts_of(bound)).hex()))

    run()
    return found[0]


def sampler(
    temperature=0.8, seed=1, name="", capacity=1, tokens=(1, 2), rows=None, shape=0, extra=False,
    swap=False, result="pair", prologue=False, top=3,
):  # fmt: skip
    """A pass with a sampler, in many spellings."""

    def make():
        fwd = ForwardPass()
        fwd.embed(list(tokens))
        fwd.state([WorkingSet()], StateGeometry.folding())
        if rows:
            fwd.readout(rows)
        rng = Channel.from_([seed, 0], dtype.u32).capacity(capacity)
        out = Channel([1] if shape else (), dtype.i32).capacity(3)
        if name:
            rng.named(name)
        if prologue:
            fwd.prologue(lambda: rng.put(rng.take()))

        def stage():
            logits, state = intrinsics.output(0, "logits"), rng.take()
            if extra:
                exp(logits) + 1.0  # nobody uses it
            if swap:
                best = top_k(logits, top)[0]
                token = gumbel_max(logits / temperature, state)
            else:
                token = gumbel_max(logits / temperature, state)
                best = top_k(logits, top)[0]
            rng.put(state + constant([0, 1], dtype.u32))
            out.put(reduce_max(token) if rows else token)
            forms = {"pair": (token, best), "list": [token, best], "keys": {"t": token, "b": best}}
            return forms[result]

        fwd.epilogue(stage)
        return fwd

    return make


SAME = {
    "another temperature": {"temperature": 0.3},
    "another seed": {"seed": 99},
    "another channel name": {"name": "dice"},
    "other tokens": {"tokens": (7, 8)},
    "dead code": {"extra": True},
    "another order of independent operations": {"swap": True},
}
OTHER = {
    "another capacity": {"capacity": 2},
    "more rows": {"tokens": (1, 2, 3)},
    "other rows read out": {"rows": [0, 1]},
    "another shape": {"shape": 1},
    "another attribute": {"top": 4},
    "another structure of the result": {"result": "list"},
    "keys in the result": {"result": "keys"},
    "a prologue": {"prologue": True},
}


@pytest.mark.parametrize("what", SAME)
def test_these_do_not_change_the_identity(what):
    assert identity(sampler(**SAME[what])) == identity(sampler())


def test_each_of_these_changes_the_identity():
    found = {what: identity(sampler(**changes))[0] for what, changes in OTHER.items()}
    found["the plain one"] = identity(sampler())[0]
    assert len(set(found.values())) == len(found), found


@on_engine(count_up)
async def test_a_seed_changes_the_identity(hub):
    ids, pipe = [], Pipeline()
    empty, seeded = Channel([1], dtype.i32), Channel.from_([5])
    for channel in (empty, seeded):
        if channel is empty:
            first, _ = appending(WorkingSet(), [1], lambda: empty.put(constant([7])))
            pipe.submit(first)
        fwd, _ = appending(WorkingSet(), [1], lambda c=channel: c.put(c.take() + 1))
        pipe.submit(fwd)
        ids.append(identity_of(fwd._bound))
    assert ids[0] != ids[1]


def test_identities_keep_their_bytes():
    cases = {"plain": {}, **{what: OTHER[what] for what in OTHER}}
    golden = json.loads(GOLDEN.read_text())
    made = {what: dict(zip(("identity", "encoding"), identity(sampler(**changes)), strict=True))
            for what, changes in cases.items()}  # fmt: skip
    assert made == golden


@on_engine(count_up)
async def test_the_form_of_the_geometry_counts_and_the_places_do_not(hub):
    ids = []
    for place in (None, [0], [3]):
        fwd, ws = ForwardPass(), WorkingSet()
        fwd.embed([1])
        if place is None:
            fwd.state([ws], StateGeometry.folding())
        else:
            ws.reserve(8)
            fwd.state([ws], StateGeometry(positions=place, slots=place, kv_len=[place[0] + 1]))
        Pipeline().submit(fwd)
        ids.append(identity_of(fwd._bound))
    assert ids[0] != ids[1] == ids[2]


def test_the_encoding_of_a_small_pass_is_what_the_module_says():
    facts = PassFacts(
        rows=2, lanes=1, geometry="folding",
        ports=[Port("tokens", "t"), Port("indptr", shape=(2,)), Port("input", "w", lane=0, name="x")],
        readout_counts=[1],
        channels={
            "t": ChannelFacts(TensorType(DType.i32, (2,)), 1, True),
            "w": ChannelFacts(TensorType(DType.f32, (300,)), 7, False),
        },
        epilogue=StageFacts(b"code", ["w"], structure=("dict", (("a", 0), ("b", ("list", (None,)))))),
    )  # fmt: skip
    assert encode(facts) == (
        b"PASS\x01" b"\x02\x01\x07folding"
        b"\x02" b"\x02\x01\x02\x01\x01" b"\x01\x01\xac\x02\x07\x00"
        b"\x03" b"\x06tokens\x00\x00\x01" b"\x06indptr\x00\x00\x00\x01\x02"
        b"\x05input\x01\x01x\x02"
        b"\x01\x01" b"\x00\x00\x00"
        b"\x01\x04code\x01\x01\x00"
        b"\x04dict\x02\x05str a\x06tensor\x00\x05str b\x04list\x01\x04none"
    )  # fmt: skip
