"""The builder of a pass and its first submit (contract, 13.1 to 13.3 and 13.10)."""

import asyncio

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
    constant,
    dtype,
    gather,
    intrinsics,
    reduce_argmax,
)
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
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


# ---- stages


@on_engine(count_up)
async def test_a_stage_runs_once_and_not_before_the_first_submit(hub):
    ws, pipe, calls = WorkingSet(), Pipeline(), []
    fwd, _ = appending(ws, [1], lambda: calls.append("epilogue"))
    fwd.prologue(lambda: calls.append("prologue"))
    assert not calls
    pipe.submit(fwd)
    pipe.submit(fwd)
    assert calls == ["prologue", "epilogue"]


@on_engine(count_up)
async def test_a_prologue_computes_what_its_own_fire_embeds(hub):
    ws, pipe, tok, at = WorkingSet(), Pipeline(), Channel([1], dtype.i32), Channel.from_([40])
    fwd, result = appending(ws, tok, greedy())

    @fwd.prologue
    def _():
        t = at.take()
        tok.put(t)
        at.put(t + 1)

    for _ in range(3):
        pipe.submit(fwd)
    assert [await result for _ in range(3)] == [1, 2, 3]
    assert hub.worker.sets_ever[0] == [40, 41, 42]


@on_engine(count_up)
async def test_equal_stages_are_one_program(hub):
    pipe = Pipeline()
    for _ in range(3):
        pipe.submit(appending(WorkingSet(), [1], greedy())[0])
    await settle()
    assert (len(sent(hub, m.DefineProgram)), len(sent(hub, m.DefinePass))) == (1, 3)


@on_engine(count_up)
async def test_an_error_in_a_stage_leaves_the_pass_unsubmitted(hub):
    ws, pipe, fail = WorkingSet(), Pipeline(), [True]

    def stage():
        if fail:
            raise ZeroDivisionError("once")
        return greedy()()

    fwd, result = appending(ws, [1], stage)
    with pytest.raises(ZeroDivisionError):
        pipe.submit(fwd)
    fail.clear()
    pipe.submit(fwd)
    assert await result == 1


# ---- results


@on_engine(count_up)
async def test_results_keep_their_structure(hub):
    def stage():
        t = reduce_argmax(intrinsics.output(0, "logits"))
        one = constant([1.5, 2.5], dtype.f32)
        return {"t": t, "pair": (one, [gather(one, 1)]), "literal": 7, "text": "x"}

    fwd, result = appending(WorkingSet(), [1], stage)
    Pipeline().submit(fwd)
    value = await result
    assert (value["t"], value["literal"], value["text"]) == (1, 7, "x")
    assert type(value["t"]) is int and type(value["pair"]) is tuple
    assert same(value["pair"][0], np.array([1.5, 2.5], np.float32))
    assert value["pair"][1] == [2.5]


@on_engine(count_up)
async def test_literals_alone_are_a_result(hub):
    fwd, result = appending(WorkingSet(), [1], lambda: {"a": 1})
    Pipeline().submit(fwd)
    assert await result == {"a": 1}


@on_engine(count_up)
async def test_epilogue_is_a_decorator(hub):
    fwd, _ = appending(WorkingSet(), [1, 2])

    @fwd.epilogue
    def result():
        return reduce_argmax(intrinsics.output(0, "logits"))

    Pipeline().submit(fwd)
    assert await result == 2


@on_engine(count_up)
async def test_each_await_is_the_next_fire_and_waiting_ones_are_served_in_call_order(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    for _ in range(3):
        pipe.submit(fwd)

    async def one():
        return await result

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    assert await asyncio.gather(*tasks) == [1, 2, 3]


@on_engine(count_up)
async def test_a_cancelled_await_loses_no_result(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    pipe.submit(fwd)

    async def one():
        return await result

    for ticks in range(40):
        task = asyncio.create_task(one())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        if (await asyncio.gather(task, return_exceptions=True)) == [1]:
            break
    else:
        raise AssertionError("the result never came")


@on_engine(count_up)
async def test_nothing_to_await_is_an_error(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    with pytest.raises(InferletError, match="nothing to await"):
        await result
    pipe.submit(fwd)
    assert await result == 1
    with pytest.raises(InferletError, match="nothing to await"):
        await result


@on_engine(count_up)
async def test_an_epilogue_without_a_value_waits_for_all_accepted_fires(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, done = appending(ws, [1], lambda: None)
    with pytest.raises(InferletError, match="nothing to await"):
        await done
    for _ in range(9):  # no hidden ring without a value
        pipe.submit(fwd)
    assert await done is None
    assert (fwd._bound.num_settled, ws._num_unsettled) == (9, 0)


@on_engine(count_up, engine={"channel_capacity": 3})
async def test_unawaited_results_fill_a_hidden_ring(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, result = appending(ws, [1], greedy())
    for _ in range(3):
        pipe.submit(fwd)
    with pytest.raises(InferletError, match=r"(?s)3 results.*not awaited.*hint: await"):
        pipe.submit(fwd)
    assert await result == 1
    pipe.submit(fwd)
    assert [await result for _ in range(3)] == [2, 3, 4]


@on_engine(count_up, faults={2: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised", "epilogue", 0)})
async def test_a_failed_fire_raises_its_cause_with_pass_fire_and_line(hub):
    ws, pipe = WorkingSet(), Pipeline()

    def stage():
        return reduce_argmax(intrinsics.output(0, "logits"))  # the failing line

    fwd, result = appending(ws, [1], stage)
    line = stage.__code__.co_firstlineno + 1
    for _ in range(3):
        pipe.submit(fwd)
    assert await result == 1
    for _ in range(3):
        with pytest.raises(
            InferletError,
            match=rf"(?s)fire 1 of pass 0 .*in its epilogue: a kernel.*test_forward.py:{line}",
        ):
            await result


@on_engine(count_up, faults={1: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised")})
async def test_waiting_for_a_failed_fire_without_a_value_raises(hub):
    ws, pipe = WorkingSet(), Pipeline()
    fwd, done = appending(ws, [1], lambda: None)
    pipe.submit(fwd)
    with pytest.raises(InferletError, match="a kernel raised"):
        await done
    assert ws.folded() == 0


@on_engine(count_up)
async def test_a_device_made_token_out_of_range_fails_the_fire(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)

    def stage():
        tok.put(constant([999], dtype.i32))

    pipe.submit(appending(ws, [1], stage)[0])
    fwd, result = appending(ws, tok, greedy())
    pipe.submit(fwd)
    with pytest.raises(InferletError, match="token id 999"):
        await result


@on_engine(engine={"max_embed_length": 4})
async def test_rows_that_are_read_out_are_limited_at_submit(hub):
    many = [0] * 5
    for readout in (many, Channel([5], dtype.u32)):
        fwd, _ = appending(WorkingSet(), [1, 2], lambda: constant(1))
        fwd.readout(readout)
        with pytest.raises(InferletError, match="(?s)reads 5 rows out; .* at most 4.*hint: name"):
            Pipeline().submit(fwd)
    fwd, _ = appending(WorkingSet(), [1, 2], lambda: constant(1))
    fwd.readout([0] * 4)
    Pipeline().submit(fwd)


@pytest.mark.parametrize("leaves", ["return", "put"])
def test_a_half_that_leaves_a_stage_is_refused_with_the_cast_to_write(leaves):
    @on_engine(count_up)
    async def run(hub):
        half, other = Channel.from_([1.5], dtype.bf16), Channel([1], dtype.bf16)

        def stage():
            value = half.take()
            if leaves == "return":
                return value
            other.put(value)

        with pytest.raises(TraceError, match=r"(?s)a bf16 tensor is .*hint: write `cast\(x, dtype"):
            Pipeline().submit(appending(WorkingSet(), [1], stage)[0])

    run()


@on_engine(count_up)
async def test_what_is_called_inside_a_stage_names_its_line(hub):
    pipe, ws = Pipeline(), WorkingSet()
    other, _ = appending(WorkingSet(), [1])
    for call in (lambda: pipe.submit(other), lambda: ws.reserve(1), lambda: ws.fork(pipe)):
        line = call.__code__.co_firstlineno
        with pytest.raises(TraceError, match=rf"inside a stage\n  at test_forward.py:{line}\n\nh"):
            pipe.submit(appending(WorkingSet(), [1], call)[0])


WITHOUT_FIT = {
    "lanes": lambda fwd: (fwd.embed([1, 2], [0, 1, 2]), fwd.state([WorkingSet()], FOLDING)),
    "ends with the number": lambda fwd: (
        fwd.embed([1, 2], [0, 3]), fwd.state([WorkingSet()], FOLDING),
    ),
    "single offset": lambda fwd: (
        fwd.embed([1], Channel.from_([0], dtype.u32)), fwd.state([WorkingSet()], FOLDING),
    ),
    "is read out": lambda fwd: (
        fwd.embed([1]), fwd.state([WorkingSet()], FOLDING), fwd.readout([1]),
    ),
    "`mask` of": lambda fwd: (
        fwd.embed([1]), fwd.state([WorkingSet()], FOLDING), fwd.mask([[True], [True]]),
    ),
    "1 columns": lambda fwd: (
        fwd.embed([1, 2]), fwd.state([WorkingSet()], FOLDING), fwd.mask([[True], [True]]),
    ),
    "names lane": lambda fwd: (
        fwd.embed([1]), fwd.state([WorkingSet()], FOLDING), fwd.group(3, 0),
    ),
    "outside the vocabulary": lambda fwd: (
        fwd.embed([10**6]), fwd.state([WorkingSet()], FOLDING),
    ),
    "is fed by": lambda fwd: (
        fwd.embed([1]), fwd.state([WorkingSet()], FOLDING), fwd.readout(Channel.from_([0])),
    ),
    "has 1 entries": lambda fwd: (
        fwd.embed([1, 2]),
        fwd.state([WorkingSet()], StateGeometry(positions=[0], slots=[0, 1], kv_len=[2])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", WITHOUT_FIT)
def test_what_does_not_fit_a_pass_says_where_it_was_made_and_what_to_do(words):
    @on_engine(count_up)
    async def run(hub):
        fwd = ForwardPass()
        fwd.epilogue(greedy())
        WITHOUT_FIT[words](fwd)
        with pytest.raises(InferletError) as caught:
            Pipeline().submit(fwd)
        assert words in str(caught.value) and "\n\nhint: " in str(caught.value)
        assert "test_forward.py:" in str(caught.value)

    run()
