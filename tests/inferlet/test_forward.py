"""The builder of a pass and its first submit (contract, 13.1 to 13.3)."""

import numpy as np
import pytest

from inferlet import (
    Channel,
    ForwardPass,
    InferletError,
    Pipeline,
    StateGeometry,
    TraceError,
    WorkingSet,
    dtype,
    intrinsics,
    reduce_argmax,
)
from ipc import messages as m
from tests.inferlet.support import appending, count_up, greedy, on_engine, same, sent, settle

FOLDING = StateGeometry.folding()


def spec_of(hub, number=0):
    return sent(hub, m.DefinePass)[number].spec


# ---- builder


@on_engine()
async def test_each_thing_is_bound_once(hub):
    fwd, channel = ForwardPass(), Channel([1], dtype.i32)
    calls = [
        lambda: fwd.embed(channel),
        lambda: fwd.state([WorkingSet()], FOLDING),
        lambda: fwd.readout([0]),
        lambda: fwd.prologue(lambda: None),
        lambda: fwd.epilogue(lambda: None),
    ]
    for call in calls:
        call()
        with pytest.raises(InferletError, match=r"bound twice"):
            call()


@on_engine()
async def test_only_state_is_legal_after_the_first_submit(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, _ = appending(ws, [1])
    pipe.submit(fwd)
    for call in (
        lambda: fwd.embed([1]),
        lambda: fwd.readout([0]),
        lambda: fwd.prologue(lambda: None),
        lambda: fwd.epilogue(lambda: None),
    ):
        with pytest.raises(InferletError, match="after its first submit"):
            call()
    fwd.state([WorkingSet()], FOLDING)


@on_engine()
async def test_builder_methods_return_none_but_epilogue(hub):
    fwd = ForwardPass()
    assert fwd.embed([1]) is None and fwd.state([WorkingSet()], FOLDING) is None
    assert fwd.readout([0]) is None and fwd.prologue(lambda: None) is None
    assert hasattr(fwd.epilogue(lambda: None), "__await__")


@on_engine()
async def test_wrong_arguments_are_python_errors(hub):
    for tokens in ([], np.array([], np.int32)):
        with pytest.raises(ValueError, match="no tokens"):
            ForwardPass().embed(tokens)
    with pytest.raises(ValueError, match="empty `indptr`"):
        ForwardPass().embed([1], indptr=[])
    for tokens in ("text", 5, [1.5], np.zeros((1, 1), np.int32), [None], [True]):
        with pytest.raises(TypeError):
            ForwardPass().embed(tokens)
    one = WorkingSet()
    for sets, geometry in (([one], None), (one, FOLDING), ([1], FOLDING), (None, FOLDING)):
        with pytest.raises(TypeError):
            ForwardPass().state(sets, geometry)
    for call in (ForwardPass().prologue, ForwardPass().epilogue):
        with pytest.raises(TypeError, match="function"):
            call(3)
        for stage in (an_async_stage, a_yielding_stage):
            with pytest.raises(TypeError, match="a stage is a plain function\n\nhint: write `def`"):
                call(stage)
    with pytest.raises(TypeError):
        StateGeometry()
    with pytest.raises(TypeError):
        ForwardPass().readout([True])
    with pytest.raises(TypeError):
        Channel([True], dtype.i32)
    with pytest.raises(TypeError, match="`submit_frame` got None"):
        Pipeline().submit_frame(None)


async def an_async_stage():
    pass


def a_yielding_stage():
    yield


@on_engine()
async def test_a_shape_is_any_sequence_of_ints(hub):
    assert Channel(range(1, 3), dtype.i32).shape == (1, 2)


@on_engine()
async def test_geometries_of_one_form_are_equal(hub):
    assert StateGeometry.folding() == StateGeometry.folding()


# ---- embed


@pytest.mark.parametrize("made", [list, tuple, np.array, lambda t: np.array(t, np.uint8)])
def test_tokens_are_any_sequence_of_ints(made):
    @on_engine()
    async def run(hub):
        fwd, _ = appending(WorkingSet(), made([1, 2, 3]))
        Pipeline().submit(fwd)
        await settle()
        assert spec_of(hub).tokens.values == (1, 2, 3)
        assert (spec_of(hub).num_rows, spec_of(hub).indptr) == (3, (0, 3))

    run()


@on_engine()
async def test_a_missing_embed_or_state_is_refused(hub):
    fwd = ForwardPass()
    with pytest.raises(InferletError, match="embeds nothing"):
        Pipeline().submit(fwd)
    fwd.embed([1])
    with pytest.raises(InferletError, match="has no state"):
        Pipeline().submit(fwd)


@pytest.mark.parametrize("token", [-2, 259, 10**9])
def test_an_id_outside_the_vocabulary_is_refused_at_submit(token):
    @on_engine()
    async def run(hub):
        ws, pipe, feed = WorkingSet(), Pipeline(), Channel([2], dtype.i32)
        with pytest.raises(InferletError, match=f"token id {token} in row 1"):
            pipe.submit(appending(ws, [-1, token])[0])
        feed.put([0, token])
        with pytest.raises(InferletError, match=f"token id {token} in row 1"):
            pipe.submit(appending(ws, feed)[0])
        await settle()
        assert not sent(hub, m.Submit)

    run()


@pytest.mark.parametrize("indptr", [[0], [1, 3], [0, 2], [0, 2, 1, 3], [0, 4]])
def test_a_bad_indptr_is_refused_at_submit(indptr):
    @on_engine()
    async def run(hub):
        fwd = ForwardPass()
        fwd.embed([1, 2, 3], indptr)
        fwd.state([WorkingSet() for _ in indptr[1:]] or [WorkingSet()], FOLDING)
        with pytest.raises(InferletError, match="indptr"):
            Pipeline().submit(fwd)

    run()


@on_engine(engine={"max_embed_length": 4})
async def test_rows_are_limited(hub):
    with pytest.raises(InferletError, match="embeds 5 rows; one pass takes at most 4"):
        Pipeline().submit(appending(WorkingSet(), [1] * 5)[0])
    with pytest.raises(InferletError, match="embeds 5 rows"):
        Pipeline().submit(appending(WorkingSet(), Channel([5], dtype.i32))[0])
    places = list(range(5))
    explicit, masked = ForwardPass(), appending(WorkingSet(), [1] * 5)[0]
    explicit.embed([1] * 5)
    explicit.state([WorkingSet()], StateGeometry(positions=places, slots=places, kv_len=[5]))
    masked.mask([[True] * 5] * 5)
    for fwd in (explicit, masked):
        with pytest.raises(InferletError, match="(?s)embeds 5 rows.*cut the prompt"):
            Pipeline().submit(fwd)


@pytest.mark.parametrize("shape, kind", [([1], "u32"), ([1, 1], "i32"), ((), "i32")])
def test_a_token_channel_is_i32_of_rank_one(shape, kind):
    @on_engine()
    async def run(hub):
        fwd, _ = appending(WorkingSet(), Channel(shape, getattr(dtype, kind)))
        with pytest.raises(TraceError, match="i32 channel of shape"):
            Pipeline().submit(fwd)

    run()


@on_engine(count_up)
async def test_absent_rows_take_no_slot(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([3], dtype.i32)
    pipe.submit(appending(ws, [5, -1, 6])[0])
    assert ws.folded() == 2
    feed.put([-1, 7, -1])
    pipe.submit(appending(ws, feed)[0])
    assert ws.folded() == 3  # only the host fills the channel: known at once
    await settle()
    assert (hub.worker.sets_ever[0], ws.folded()) == ([5, 6, 7], 3)


@on_engine(count_up, info={"context_length": 6})
async def test_a_position_beyond_the_context_is_refused_at_submit(hub):
    ws, pipe = WorkingSet(), Pipeline()
    pipe.submit(appending(ws, [1, 2, 3, 4])[0])
    with pytest.raises(InferletError, match="reaches position 6"):
        pipe.submit(appending(ws, [1, 2, 3])[0])
    pipe.submit(appending(ws, [1, 2])[0])
    fwd, _ = appending(ws, [-1])
    pipe.submit(fwd)
    await settle()
    assert ws.folded() == 6


# ---- state


@on_engine()
async def test_one_working_set_per_lane(hub):
    fwd = ForwardPass()
    fwd.embed([1, 2], [0, 1, 2])
    fwd.state([WorkingSet()], FOLDING)
    with pytest.raises(InferletError, match="2 lanes.*1 working sets"):
        Pipeline().submit(fwd)


@on_engine()
async def test_a_working_set_is_in_one_lane(hub):
    fwd, ws = ForwardPass(), WorkingSet()
    fwd.embed([1, 2], [0, 1, 2])
    fwd.state([ws, ws], FOLDING)
    with pytest.raises(InferletError, match="in two lanes"):
        Pipeline().submit(fwd)


@on_engine(count_up)
async def test_state_after_the_first_submit_affects_later_ones(hub):
    one, two, pipe = WorkingSet(), WorkingSet(), Pipeline()
    fwd, result = appending(one, [7], greedy())
    pipe.submit(fwd)
    fwd.state([two], FOLDING)
    fwd.state([two], FOLDING)
    pipe.submit(fwd)
    pipe.submit(fwd)
    assert [await result for _ in range(3)] == [1, 1, 2]
    assert [one.folded(), two.folded()] == [1, 2]
    assert len(sent(hub, m.BindState)) == 1
    with pytest.raises(InferletError, match="1 lanes"):
        fwd.state([one, two], FOLDING)


# ---- readout


@on_engine(count_up)
async def test_the_default_readout_is_the_last_row_of_each_lane(hub):
    fwd, pipe = ForwardPass(), Pipeline()
    fwd.embed([1, 2, 3, 4, 5], [0, 2, 5])
    fwd.state([WorkingSet(), WorkingSet()], FOLDING)
    result = fwd.epilogue(lambda: [reduce_argmax(intrinsics.output(i, "logits")) for i in (0, 1)])
    pipe.submit(fwd)
    assert await result == [2, 3]
    assert (spec_of(hub).readout, spec_of(hub).readout_counts) == ((1, 4), (1, 1))


@on_engine(count_up)
async def test_readout_rows_keep_their_order_within_a_lane_and_may_repeat(hub):
    fwd, pipe = ForwardPass(), Pipeline()
    fwd.embed([1, 2, 3, 4, 5], [0, 2, 5])
    fwd.state([WorkingSet(), WorkingSet()], FOLDING)
    fwd.readout([4, 0, 2, 4])
    result = fwd.epilogue(lambda: [reduce_argmax(intrinsics.output(i, "logits")) for i in (0, 1)])
    pipe.submit(fwd)
    one, two = await result
    assert one == 1 and same(two, np.array([3, 1, 3], np.int32))


@pytest.mark.parametrize("index", [-1, 2])
def test_a_readout_index_out_of_range_is_refused_at_submit(index):
    @on_engine()
    async def run(hub):
        fwd, _ = appending(WorkingSet(), [1, 2], lambda: None)
        fwd.readout([index])
        with pytest.raises(InferletError, match=f"row {index}"):
            Pipeline().submit(fwd)

    run()


@on_engine()
async def test_a_pass_without_an_epilogue_reads_nothing_out(hub):
    Pipeline().submit(appending(WorkingSet(), [1, 2])[0])
    await settle()
    assert (spec_of(hub).readout, spec_of(hub).readout_counts) == ((), (0,))


@pytest.mark.parametrize(
    "lane, name, text",
    [
        (1, "logits", "lane 1 does not exist"),
        (-1, "logits", "lane -1 does not exist"),
        (0, "speech", "no output 'speech'.*logits, hidden"),
    ],
)
def test_an_output_that_is_not_there_is_a_trace_error_listing_what_is(lane, name, text):
    @on_engine()
    async def run(hub):
        fwd, _ = appending(WorkingSet(), [1], lambda: intrinsics.output(lane, name))
        with pytest.raises(TraceError, match=f"(?s)^(?=.*test_forward.py).*{text}"):
            Pipeline().submit(fwd)

    run()


@on_engine()
async def test_a_lane_without_rows_read_out_is_a_trace_error(hub):
    fwd = ForwardPass()
    fwd.embed([1, 2], [0, 1, 2])
    fwd.state([WorkingSet(), WorkingSet()], FOLDING)
    fwd.readout([0])
    fwd.epilogue(lambda: intrinsics.output(1, "logits"))
    with pytest.raises(TraceError, match="(?s)lane 1 has no rows read out.*: 0"):
        Pipeline().submit(fwd)
