"""Stages of a pass and their results (contract, 13.10)."""

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
            match=rf"(?s)fire 1 of pass 0 .*in its epilogue: a kernel.*test_stages.py:{line}",
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
        with pytest.raises(TraceError, match=rf"inside a stage\n  at test_stages.py:{line}\n\nh"):
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
        assert "test_stages.py:" in str(caught.value)

    run()
