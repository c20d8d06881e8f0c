"""Masked lanes on the served model: transformers' numbers, and no trace in the lanes beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.model.drive import Driver, Lane
from worker.model import Model
from worker.model.base import MaskedLane

pytestmark = pytest.mark.model

TOLERANCE = 1e-3


def tokens(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(100, 40_000, (count,), generator=generator).tolist()


def mask(rows: int, width: int, seed: int) -> Tensor:
    """Half of the earlier slots, and each row's own: the last rows of `width` slots."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(width, width, generator=generator) < 0.5
    return (seen.tril() | torch.eye(width, dtype=torch.bool))[width - rows :]


@pytest.fixture
def lanes(driver: Driver) -> Iterator[list[Lane]]:
    """Three lanes with 70, 33 and 200 tokens."""
    made = [Lane() for _ in range(3)]
    for seed, (lane, count) in enumerate(zip(made, (70, 33, 200))):
        driver.step([(lane, tokens(count, seed))])
    yield made
    for lane in made:
        driver.release(lane)


def test_a_random_mask_gives_the_logits_of_transformers(
    driver: Driver, model_path: Path, lanes: list[Lane]
) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(
        model_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids, seen = tokens(90, 7), mask(90, 90, 7)
    seen[10:20, 10:20] = True  # ten rows that see each other, later ones too
    additive = torch.zeros(1, 1, 90, 90).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        wanted = reference(torch.tensor([ids]), attention_mask=additive).logits[0]
    lane = Lane()
    # The first 80 beside a plain lane's prefill, the rest one by one.
    prefill = [(Lane(), tokens(40, 8)), (lane, ids[:80])]
    got = [driver.step_masked(prefill, {1: seen[:80, :80]})[40:]]
    got += [driver.step_masked([(lane, [ids[row]])], {0: seen[row, None]}) for row in range(80, 90)]
    assert (torch.cat(got) - wanted).abs().max() <= TOLERANCE
    driver.release(lane)
    driver.release(prefill[0][0])


def test_a_causal_mask_gives_what_no_mask_gives(driver: Driver) -> None:
    plain, masked, ids = Lane(), Lane(), tokens(100, 3)
    causal = torch.ones(101, 101, dtype=torch.bool).tril()
    wanted = driver.every_row([(plain, ids)], [])
    got = driver.step_masked([(masked, ids)], {0: causal[:100, :100]})
    assert (got - wanted).abs().max() <= 2e-4
    wanted = driver.every_row([(plain, [5])], [])
    assert (driver.step_masked([(masked, [5])], {0: causal[100:]}) - wanted).abs().max() <= 2e-4
    driver.release(plain)
    driver.release(masked)


@pytest.mark.parametrize("order", ["ppm", "mpp", "pmp", "mpm", "mmm"])
def test_no_lane_has_other_bits_beside_other_lanes(
    driver: Driver, lanes: list[Lane], order: str
) -> None:
    work = [(lane, [7]) for lane in lanes]
    masks = {i: mask(1, lane.length + 1, i) for i, lane in enumerate(lanes) if order[i] == "m"}
    together = driver.step_masked(work, masks, write=False)
    for i, (lane, new) in enumerate(work):
        own = {0: masks[i]} if i in masks else {}
        alone = driver.step_masked([(lane, new)], own, write=False)
        assert torch.equal(alone[0], together[i])


def test_a_masked_prompt_has_the_same_bits_whole_and_in_chunks(driver: Driver) -> None:
    ids, seen = tokens(70, 4), mask(70, 70, 4)
    whole, cut = Lane(), Lane()
    wanted = driver.step_masked([(whole, ids)], {0: seen})
    for first, end in ((0, 30), (30, 34), (34, 70)):
        got = driver.step_masked([(cut, ids[first:end])], {0: seen[first:end, :end]})
        assert torch.equal(got, wanted[first:end])
    driver.release(whole)
    driver.release(cut)


def test_a_row_that_attends_nothing_depends_on_no_slot(driver: Driver, lanes: list[Lane]) -> None:
    nothing = torch.zeros(1, 0, dtype=torch.bool)
    first, second = (lanes[0], [7]), (lanes[2], [7])
    both = driver.step_masked([first, second], {0: nothing, 1: nothing}, write=False)
    assert both.isfinite().all()
    # Without attention a position is of no effect.
    assert torch.equal(both[0], both[1])
    assert not torch.equal(both[0], driver.step_masked([first], {}, write=False)[0])


def test_poison_in_a_hidden_page_reaches_nobody(driver: Driver, lanes: list[Lane]) -> None:
    lane = lanes[2]
    seen = torch.ones(1, lane.length + 1, dtype=torch.bool)
    seen[0, 32:64] = False
    wanted = driver.step_masked([(lane, [7])], {0: seen}, write=False)
    for kv in driver.model._kv:
        kv[:, lane.pages[1]] = torch.nan
    assert torch.equal(driver.step_masked([(lane, [7])], {0: seen}, write=False), wanted)
    driver.model.clear_pages([lane.pages[1]])


def test_poison_in_a_hidden_slot_of_a_page_that_is_read_reaches_nobody(
    driver: Driver, lanes: list[Lane]
) -> None:
    """One row reads a page of which it sees every second slot, and its own page in part."""
    lane = lanes[2]
    seen = torch.ones(1, lane.length + 1, dtype=torch.bool)
    seen[0, 32:64:2] = False
    wanted = driver.step_masked([(lane, [7])], {0: seen}, write=False)
    hidden = lane.pages[1] * 32 + torch.arange(0, 32, 2)
    for layer in driver.model._layers.values():
        packing = driver.model._masked._packing(layer, layer.kv_cache)
        places = packing._elements(hidden, *layer.kv_cache.shape[1:])
        layer.kv_cache.view(-1)[places] = torch.nan
    assert torch.equal(driver.step_masked([(lane, [7])], {0: seen}, write=False), wanted)
    driver.model.clear_pages([lane.pages[1]])


def test_a_row_gets_from_packed_pages_what_it_gets_slot_by_slot(
    driver: Driver, lanes: list[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, masks = [(lane, [7]) for lane in lanes], {}
    for number, lane in enumerate(lanes):
        masks[number] = mask(1, lane.length + 1, number)
        masks[number][0, :64] = True
    packed = driver.step_masked(work, masks, write=False)
    monkeypatch.setattr(driver.model, "_scratch", range(0))
    assert (driver.step_masked(work, masks, write=False) - packed).abs().max() <= TOLERANCE


def test_a_group_reads_pages_of_other_lanes(driver: Driver) -> None:
    ids, whole, prefix, rest = tokens(60, 5), Lane(), Lane(), Lane()
    wanted = driver.every_row([(whole, ids)], [])[40:]
    for lane, end in ((prefix, 40), (rest, 20)):
        driver.grow(lane, end)
    batch = driver.batch([(prefix, ids[:40]), (rest, ids[40:])])
    batch.positions = torch.arange(60)
    # Own page first, then those of the other lane, whose rows come from this same forward.
    own = torch.zeros(20, 32, dtype=torch.bool)
    own[:, :20] = torch.ones(20, 20, dtype=torch.bool).tril()
    seen = torch.cat([own, torch.ones(20, 40, dtype=torch.bool)], 1)
    batch.masked = [MaskedLane(1, rest.pages + prefix.pages, seen)]
    batch.readout_rows = torch.arange(40, 60)
    got = driver.model.logits(driver.model.forward(batch))
    assert (got - wanted).abs().max() <= TOLERANCE
    for lane in (whole, prefix, rest):
        driver.release(lane)


def test_cleared_pages_bring_nothing_from_their_last_owner(driver: Driver) -> None:
    ids, lane = tokens(40, 6), Lane()
    wanted = driver.step([(lane, ids)])
    for kv in driver.model._kv:
        kv[:, lane.pages] = torch.nan
    driver.model.clear_pages(lane.pages)
    lane.length = 0
    assert torch.equal(driver.step([(lane, ids)]), wanted)
    driver.release(lane)


def test_the_packing_of_pages_is_found_and_the_general_reader_agrees(
    driver: Driver, lanes: list[Lane]
) -> None:
    layer = next(iter(driver.model._layers.values()))
    from worker.model.vllm_masked import probe

    packing = probe(layer, layer.kv_cache)
    # What the fast reader is made for: slower, not wrong, when vLLM changes it.
    assert packing.in_halves
    work, masks = [(lanes[2], [7])], {0: mask(1, 201, 1)}
    wanted = driver.step_masked(work, masks, write=False)
    attention = driver.model._masked
    kept = dict(attention._packings)
    for other in attention._packings.values():
        other.in_halves = False
    try:
        assert torch.equal(driver.step_masked(work, masks, write=False), wanted)
    finally:
        for key in kept:
            attention._packings[key].in_halves = True


@pytest.mark.parametrize(
    "owner, name, value, said",
    [
        ("layer", "sliding_window", 512, "an attention window of 512 tokens"),
        ("layer", "attn_type", "encoder", "encoder attention"),
        ("layer", "kv_cache_torch_dtype", torch.uint8, "pages of another type"),
        ("impl", "logits_soft_cap", 30.0, "a soft cap"),
        ("impl", "sinks", torch.zeros(9), "sinks"),
    ],
)
def test_a_model_that_cannot_take_masks_says_why(
    model: Model, monkeypatch: pytest.MonkeyPatch, owner: str, name: str, value: object, said: str
) -> None:
    from worker.model.vllm_masked import mask_refusal

    assert model.mask_refusal is None
    layer = list(model._layers.values())[3]
    monkeypatch.setattr(layer if owner == "layer" else layer.impl, name, value)
    assert said in mask_refusal(model._layers.values())


def test_masked_lanes_raise_where_they_are_refused(
    driver: Driver, lanes: list[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.model, "_masked", None)
    monkeypatch.setattr(driver.model, "mask_refusal", "no masks here")
    with pytest.raises(ValueError, match="no masks here"):
        driver.step_masked([(lanes[0], [7])], {0: mask(1, 71, 0)}, write=False)


def test_layers_that_share_pages_are_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    name, layer = list(model._layers.items())[3]
    monkeypatch.setattr(layer, "kv_sharing_target_layer_name", "model.layers.1.self_attn.attn")
    with pytest.raises(ValueError, match=f"layer {name} reads the KV pages of model.layers.1"):
        model._group_layers()
