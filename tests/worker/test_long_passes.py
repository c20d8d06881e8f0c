"""Passes of more rows than a wave: cut wherever that changes nothing, whole where rows may attend
later ones."""

from __future__ import annotations

from array import array
from dataclasses import replace

import msgspec
import pytest

from ipc import messages as m
from ipc.types import DType, Mask, Operand, PassSpec, Placement, TensorType
from tests.worker.bench import CONFIG, Bench, Chat, Client, best, greedy_tokens, program

ROWS = 40
PROMPT = [(7 * place) % 60 + 1 for place in range(ROWS)]
EXPECTED = greedy_tokens(PROMPT, 1)
SHORT = [5, 3, 1]
SHORT_EXPECTED = greedy_tokens(SHORT, 13)


def _bench(budget: int = 8) -> Bench:
    return Bench(config=replace(CONFIG, row_budget=budget, short_rows=4, min_chunk=2))


def _explicit(client: Client, mask: Mask | None = None, groups: tuple[int, ...] = ()) -> PassSpec:
    """All rows of the prompt on slots and positions that the host gives."""
    places, working_set = Operand(tuple(range(ROWS))), client.working_set()
    client.say(m.Reserve(working_set, ROWS))
    return PassSpec(
        90, ROWS, Operand(tuple(PROMPT)), (0, ROWS), (working_set,), (ROWS - 1,), (1,),
        epilogue=client.stage(best()), has_results=True, mask=mask, groups=groups,
        placement=Placement(places, places, Operand((ROWS,)), Operand((0xFFFFFFFF,))),
    )  # fmt: skip


def _causal_mask() -> Mask:
    return Mask(ROWS, bytes(slot <= row for row in range(ROWS) for slot in range(ROWS)))


def _bidirectional_mask() -> Mask:
    return Mask(ROWS, bytes([1]) * ROWS * ROWS)


def _run(bench: Bench, client: Client, spec: PassSpec) -> list[int]:
    """Rows of the pass in each wave that it was in."""
    pipeline, rows = client.pipeline(), []
    observe = bench.engine.pace.observe

    def note(segments, seconds) -> None:
        rows.extend(s.stop - s.start for s in segments if s.fire.process.number == client.number)
        observe(segments, seconds)

    bench.engine.pace.observe = note
    client.say(m.DefinePass(spec))
    client.submit(pipeline, spec.pass_id)
    bench.settle()
    return rows


def test_explicit_rows_that_only_append_are_cut_and_give_the_same() -> None:
    bench = _bench()
    client = bench.client()
    rows = _run(bench, client, _explicit(client))
    assert rows == [8] * 5
    assert client.tokens() == EXPECTED


def test_decodes_go_on_beside_explicit_rows_that_only_append() -> None:
    bench = _bench()
    chat = Chat(bench.client(), SHORT)
    chat.start()
    chat.run(12)
    bench.step()
    client = bench.client()
    rows = _run(bench, client, _explicit(client))
    assert sum(rows) == ROWS and max(rows) <= 8
    assert client.tokens() == EXPECTED
    assert chat.tokens == SHORT_EXPECTED[:7]


@pytest.mark.parametrize("mask", [_causal_mask, _bidirectional_mask])
def test_masked_rows_stay_together_whatever_the_budget(mask) -> None:
    cut, whole = _bench(8), _bench(256)
    results = []
    for bench in (cut, whole):
        client = bench.client()
        assert _run(bench, client, _explicit(client, mask())) == [ROWS]
        results.append(client.tokens())
    assert results[0] == results[1]
    if mask is _causal_mask:
        assert results[0] == EXPECTED


def test_rows_in_a_group_stay_together() -> None:
    bench = _bench()
    client = bench.client()
    assert _run(bench, client, _explicit(client, groups=(7,))) == [ROWS]


@pytest.mark.parametrize("fed_by", ["host", "device"])
def test_ids_from_a_channel_are_cut_like_any_prompt(fed_by: str) -> None:
    bench = _bench()
    client = bench.client()
    channel = client.channel(TensorType(DType.i32, (ROWS,)))
    pipeline = client.pipeline()
    if fed_by == "host":
        client.put(channel, PROMPT)
    else:

        def put(b) -> list[int]:
            b.put(0, b.add("constant", (), {"dtype": DType.i32, "shape": (ROWS,)}))
            return []

        constants = array("i", PROMPT).tobytes()
        feeder = client.define_pass(
            [1], [client.working_set()],
            epilogue=client.stage(program(put), channel, constants=constants), has_results=False,
        )  # fmt: skip
        client.submit(pipeline, feeder)
    reader = client.define_pass(
        channel, [client.working_set()], num_rows=ROWS, epilogue=client.stage(best())
    )
    client.submit(pipeline, reader)
    waves = bench.settle()
    assert client.fired(pipeline)[-1].results == (array("i", EXPECTED).tobytes(),)
    assert waves == 5 + (fed_by == "device")


def _too_many(kind: str, client: Client) -> PassSpec:
    places = Operand(tuple(range(10_000)))
    host = Operand(tuple([1] * 10_000))
    spec = PassSpec(90, 10_000, host, (0, 10_000), (client.working_set(),), (), (0,))
    if kind == "channel":
        cell = TensorType(DType.i32, (10_000,))
        return msgspec.structs.replace(spec, tokens=Operand(channel=client.channel(cell)))
    if kind == "explicit":
        placement = Placement(places, places, Operand((10_000,)))
        return msgspec.structs.replace(spec, placement=placement)
    return msgspec.structs.replace(spec, mask=Mask(1, bytes(10_000)))


@pytest.mark.parametrize("kind", ["channel", "explicit", "mask"])
def test_ten_thousand_rows_are_no_pass_whatever_feeds_or_places_them(kind: str) -> None:
    bench = Bench(context=16_384)
    client, good = bench.client(), Chat(bench.client(), SHORT)
    client.say(m.DefinePass(_too_many(kind, client)))
    good.start()
    bench.settle()
    assert "a pass of 10000 rows; the most is 8192" in client.goodbye().failure.message
    assert good.tokens == SHORT_EXPECTED[:1]


def test_the_longest_pass_from_a_channel_goes_over_many_waves() -> None:
    longest = 256
    bench = Bench(row_budget=32, max_embed_length=longest)
    client, good = bench.client(), Chat(bench.client(), SHORT)
    good.start()
    bench.settle()
    good.run(6)
    channel = client.channel(TensorType(DType.i32, (longest,)))
    client.put(channel, [place % 60 + 1 for place in range(longest)])
    held = client.working_set()
    client.submit(client.pipeline(), client.define_pass(channel, [held], num_rows=longest))
    waves = bench.settle()
    assert waves >= 8 and client.length(held) == longest
    assert good.tokens == SHORT_EXPECTED[:7]


def test_a_cut_pass_that_fails_to_begin_leaves_nothing() -> None:
    bench = _bench()
    client = bench.client()
    spec = _explicit(client)
    client.say(m.DefinePass(spec))
    client.submit(client.pipeline(), spec.pass_id)
    for _ in range(2):
        bench.step()
    bench.hub.send([m.ProcessEnded(client.number)], [])
    bench.settle()
    assert bench.state.pool.num_free == bench.state.pool.capacity
