"""Explicit geometry: what a submit refuses, what a fire fails for, and what a run undoes."""

import tracemalloc

import pytest

from inferlet import (
    Channel,
    ForwardPass,
    InferletError,
    OutOfMemory,
    Pipeline,
    StateGeometry,
    WorkingSet,
    dtype,
)
from tests.inferlet.support import appending, count_up, greedy, on_engine, settle

FREEZE_ALL = 0xFFFFFFFF


def copying(source, target):
    """A prologue that makes a host value the device's own."""
    return lambda: target.put(source.take() + 0)


def placing(ws, tokens, slots, kv_len, *, positions=None, fold=None):
    """A pass of one lane at these slots, whose positions are the slots."""
    fwd = ForwardPass()
    fwd.embed(tokens)
    at = slots if positions is None else positions
    fwd.state([ws], StateGeometry(positions=at, slots=slots, kv_len=kv_len, fold=fold))
    return fwd, fwd.epilogue(greedy())


@on_engine(count_up)
async def test_an_append_at_known_slots_needs_no_reservation_and_freezes_nothing(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, seen = placing(ws, [5, 6], [0, 1], [2])
    pipe.submit(fwd)
    assert (await seen, ws.folded()) == (2, 0)
    fold, seen = placing(ws, [7], [2], [3], fold=[FREEZE_ALL])
    pipe.submit(fold)
    assert ws.folded() == 3 and await seen == 3


REFUSED = {
    "frozen": ([9], [1], [3], None),
    "not below": ([9], [4], [4], None),
    "two rows": ([8, 9], [4, 4], [5], None),
    "beyond the model's context": ([9], [3], [4], [4096]),
    "entries": ([8, 9], [3], [5], None),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_submit_refuses_what_the_host_knows(reason):
    @on_engine(count_up)
    async def run(hub):
        ws, pipe = WorkingSet(), Pipeline()
        pipe.submit(appending(ws, [1, 2, 3])[0])
        tokens, slots, kv_len, positions = REFUSED[reason]
        with pytest.raises(InferletError, match=reason):
            pipe.submit(placing(ws, tokens, slots, kv_len, positions=positions)[0])
        assert ws.folded() == 3
        again, seen = placing(ws, [9], [3], [4])
        pipe.submit(again)
        assert await seen == 4

    run()


@on_engine(count_up)
async def test_entries_of_absent_rows_are_ignored(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, _ = placing(ws, [5, -1], [0, 0], [1], positions=[0, 99999])
    fwd.readout([0, 1])
    pipe.submit(fwd)
    await settle()
    assert hub.worker.sets_ever[0] == [5]


@on_engine(count_up)
async def test_a_fire_fails_for_a_slot_that_the_device_chose_beyond_the_reservation(hub):
    for reserved in (0, 8):
        ws, pipe, slot = WorkingSet(), Pipeline(), Channel([1], dtype.u32)
        feed = Channel.from_([0], dtype.u32)
        ws.reserve(reserved)
        fwd = ForwardPass()
        fwd.embed([5])
        fwd.state([ws], StateGeometry(positions=slot, slots=slot, kv_len=[1]))
        fwd.prologue(copying(feed, slot))
        seen = fwd.epilogue(greedy())
        if reserved:
            pipe.submit(fwd)
            assert await seen == 1
        else:
            with pytest.raises(InferletError, match="reserve"):
                pipe.submit(fwd)
                await seen


@on_engine(count_up)
async def test_fold_counts_when_settled_if_a_stage_puts_it(hub):
    ws, pipe = WorkingSet(), Pipeline()
    count, feed = Channel([1], dtype.u32), Channel.from_([2], dtype.u32)
    fwd, seen = placing(ws, [5, 6, 7], [0, 1, 2], [3], fold=count)
    fwd.prologue(lambda: count.put(feed.take() + 0))
    pipe.submit(fwd)
    assert ws.folded() == 0
    await seen
    assert ws.folded() == 2


@on_engine(count_up)
async def test_a_stopped_run_leaves_overwritten_slots_as_they_were(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([9])
    pipe.submit(placing(ws, [5, 6, 7, 8], [0, 1, 2, 3], [4])[0])
    slot, at = Channel([1], dtype.u32), Channel.from_([1], dtype.u32)
    fwd = ForwardPass()
    fwd.embed(tok)
    fwd.state([ws], StateGeometry(positions=slot, slots=slot, kv_len=[4]))

    @fwd.prologue
    def _():
        here = at.take()
        slot.put(here)
        at.put(here + 1)

    fwd.epilogue(greedy(tok))
    assert await pipe.run_ahead(fwd, 3, lambda: False) == 1
    await settle()
    assert hub.worker.sets_ever[0] == [5, 9, 7, 8]
    assert ws.folded() == 0


@on_engine(count_up)
async def test_offsets_and_readouts_may_come_from_channels(hub):
    sets, pipe = [WorkingSet(), WorkingSet()], Pipeline()
    indptr, rows = Channel.from_([0, 1, 3], dtype.u32), Channel.from_([2, 0], dtype.u32)
    fwd = ForwardPass()
    fwd.embed([5, 6, 7], indptr=indptr)
    fwd.state(sets, StateGeometry.folding())
    fwd.readout(rows)
    seen = fwd.epilogue(lambda: [greedy()(), both_lanes()])
    pipe.submit(fwd)
    assert await seen == [1, 2]
    assert [ws.folded() for ws in sets] == [1, 2]
    indptr.set([0, 0, 3])
    with pytest.raises(InferletError, match="read out of the lanes"):
        pipe.submit(fwd)


def both_lanes():
    from inferlet import intrinsics, reduce_argmax

    return reduce_argmax(intrinsics.output(1, "logits"))


@on_engine(count_up)
async def test_a_mask_narrower_than_the_lane_is_refused(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, _ = appending(ws, [1, 2, 3], greedy())
    fwd.mask([[True] * 2] * 3)
    with pytest.raises(InferletError, match="2 columns"):
        pipe.submit(fwd)


@on_engine(count_up)
async def test_a_row_sees_earlier_positions_of_its_group_alone(hub):
    sets, pipe = [WorkingSet(), WorkingSet()], Pipeline()
    fwd = ForwardPass()
    fwd.embed([5, 6, 7], indptr=[0, 2, 3])
    fwd.state(sets, StateGeometry.folding())
    fwd.group(0, 3)
    fwd.group(1, 3)
    fwd.readout([1, 2])
    seen = fwd.epilogue(lambda: [greedy()(), both_lanes()])
    pipe.submit(fwd)
    assert await seen == [3, 1]


@on_engine(count_up)
async def test_checkpoints_change_nothing_on_attention_models(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, seen = placing(ws, [5, 6], [0, 1], [2])
    fwd.checkpoints([0])
    pipe.submit(fwd)
    assert await seen == 2


@on_engine(count_up)
async def test_reservations_are_checked(hub):
    ws = WorkingSet()
    with pytest.raises(ValueError):
        ws.reserve(-1)
    with pytest.raises(OutOfMemory):
        ws.reserve(1 << 40)


def test_geometries_are_equal_when_their_ports_are():
    a, b = Channel([1], dtype.u32), Channel([1], dtype.u32)

    def make(slots):
        return StateGeometry(positions=[0], slots=slots, kv_len=[1])

    assert make(a) == make(a) and make([3]) == make([3])
    assert make(a) != make(b) and make([3]) != StateGeometry.folding()


@pytest.mark.parametrize("how", ["list", "channel", "later cell of a run"])
def test_a_slot_beyond_all_memory_is_refused_before_anything_has_that_size(how):
    @on_engine(count_up)
    async def run(hub):
        huge, pipe = 2**31, Pipeline()
        if how == "list":
            fwd, _ = placing(WorkingSet(), [5, 6], [huge, 1], [huge + 1], positions=[0, 1])
        else:
            kv_len = Channel.from_([huge + 1], dtype.u32)
            slots = Channel([2], dtype.u32).capacity(2)
            if how != "channel":
                slots.put([0, 1])
            slots.put([huge, 1])
            fwd, _ = placing(WorkingSet(), [5, 6], slots, kv_len, positions=[0, 1])
            # Not a large kv_len alone, which is refused, too.
            kv_len.set([2 if how != "channel" else huge + 1])
        tracemalloc.start()
        try:
            with pytest.raises(OutOfMemory, match=r"(?s)needs \d+ pages for one sequence.*hint"):
                if how == "later cell of a run":
                    await pipe.run_ahead(fwd, 2, lambda t: None)
                else:
                    pipe.submit(fwd)
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
        finally:
            tracemalloc.stop()

    run()


BROKEN = {"positions": 4096, "slots": 30, "kv_len": 99, "readout": 1, "indptr": 3}


@pytest.mark.parametrize("port", BROKEN)
def test_a_value_that_a_stage_made_for_a_port_fails_with_the_line_of_its_put(port):
    @on_engine(count_up)
    async def run(hub):
        ws, pipe = WorkingSet(), Pipeline()
        ws.reserve(8)
        sizes = {name: 2 if name == "indptr" else 1 for name in BROKEN}
        made = Channel([sizes[port]], dtype.u32).named("chosen")
        feed = Channel.from_([0] * (sizes[port] - 1) + [BROKEN[port]], dtype.u32)

        def prologue():
            made.put(feed.take() + 0)  # the line

        fwd = ForwardPass()
        fwd.embed([5], indptr=made if port == "indptr" else None)
        places = {"positions": [0], "slots": [0], "kv_len": [1]}
        if port in places:
            fwd.state([ws], StateGeometry(**{**places, port: made}))
        else:
            fwd.state([ws], StateGeometry.folding())
        if port == "readout":
            fwd.readout(made)
        fwd.prologue(prologue)
        seen = fwd.epilogue(greedy())
        pipe.submit(fwd)
        line = prologue.__code__.co_firstlineno + 1
        where = rf"(?s)at test_geometry.py:{line}: what is put on channel `chosen`.*hint: "
        with pytest.raises(InferletError, match=where):
            await seen

    run()
