"""What the host gives in one command: as much as a frame holds, and a refusal at its line beyond."""

import asyncio

import numpy as np
import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    WorkingSet,
    broadcast,
    constant,
    dtype,
    reduce_sum,
)
from inferlet.runtime import handles, ledger
from inferlet.runtime.outbox import check_pass
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from ipc.types import MAX_RESULT_BYTES
from tests.inferlet.support import appending, count_up, on_engine, sent, settle


@on_engine(count_up)
async def test_constants_of_more_than_16_mib_go_through(hub):
    ones = np.ones(65_536, np.float32)

    def stage():
        return sum((reduce_sum(constant(ones * i)) for i in range(70)), 0.0)

    fwd, result = appending(WorkingSet(), [1], stage)
    Pipeline().submit(fwd)
    assert float(await result) == 65_536 * sum(range(70))


@on_engine(count_up)
async def test_a_cell_of_more_than_16_mib_goes_through(hub):
    channel = Channel([5 << 20], dtype.f32)
    fwd, result = appending(WorkingSet(), [1], lambda: reduce_sum(channel.take()))
    channel.put(np.ones(5 << 20, np.float32))
    Pipeline().submit(fwd)
    assert float(await result) == 5 << 20


def test_the_largest_mask_of_the_default_engine_is_no_more_than_a_frame():
    check_pass(8192 * 8192 + 8192 * 25, "a pass")


@on_engine(count_up)
async def test_a_pass_that_no_frame_holds_is_refused_before_it_is_sent(hub):
    fwd, _ = appending(WorkingSet(), [1, 2])
    fwd.mask(np.ones((2, 70 << 20), bool))
    with pytest.raises(InferletError, match=r"(?s)support.py:\d+\) have 146,.*hint: put what"):
        Pipeline().submit(fwd)
    await settle()
    assert not sent(hub, m.DefinePass)


@on_engine()
async def test_a_cell_that_no_frame_holds_is_refused_before_it_is_sent(hub):
    channel = Channel([33 << 20], dtype.f32)
    with pytest.raises(InferletError, match=r"test_large_data.py:\d+\): a cell of 138,412,032"):
        channel.put(np.zeros(33 << 20, np.float32))


def returning(nbytes):
    return appending(WorkingSet(), [1], lambda: broadcast(constant(1.0), [nbytes // 4]))


@on_engine(count_up)
async def test_a_result_that_cannot_be_delivered_is_refused_at_submit(hub):
    pipe = Pipeline()
    with pytest.raises(InferletError, match=r"(?s)support.py:\d+\) returns 536,.*f32\[134217728\]"):
        pipe.submit(returning(1 << 29)[0])
    assert not sent(hub, m.Submit)


@on_engine(count_up, info={"context_length": 1 << 20})
async def test_large_results_on_their_way_are_bounded_in_all(hub):
    pipe = Pipeline()
    fwd, result = returning(MAX_RESULT_BYTES // 2)
    pipe.submit_frame([fwd, fwd])
    with pytest.raises(InferletError, match="await the epilogue before the next submit"):
        pipe.submit(fwd)
    assert len(await result) == MAX_RESULT_BYTES // 8
    assert len(await result) == MAX_RESULT_BYTES // 8
    pipe.submit(fwd)
    assert len(await result) == MAX_RESULT_BYTES // 8


SMALL = 4096  # bytes of a result


@pytest.fixture
def room_for_four(monkeypatch):
    monkeypatch.setattr(ledger, "MAX_RESULT_BYTES_OF_ALL", 4 * SMALL)


def test_results_of_several_pipelines_are_bounded_together(room_for_four):
    """Each alone fits; a process that reads slowly would be ended for all of them together."""

    @on_engine(count_up, info={"context_length": 1 << 20})
    async def test(hub):
        made = [(Pipeline(), *returning(SMALL)) for _ in range(5)]
        for pipe, fwd, _ in made[:4]:
            pipe.submit(fwd)
        pipe, fwd, result = made[4]
        with pytest.raises(InferletError, match=r"(?s)16,384 bytes are on their way.*hint: await some"):
            pipe.submit(fwd)
        for _, _, earlier in made[:4]:
            await earlier
        pipe.submit_frame([fwd] * 4)
        assert len(await result) == SMALL // 4
        for _ in range(3):
            await result
        assert handles.current().result_bytes_coming == 0

    test()


def test_runs_of_several_pipelines_go_on_with_what_room_there_is(room_for_four):
    @on_engine(count_up, info={"context_length": 1 << 20})
    async def test(hub):
        runs = [Pipeline().run_ahead(returning(SMALL)[0], 6, lambda value: None) for _ in range(8)]
        assert await asyncio.gather(*runs) == [6] * 8
        stopped = Pipeline().run_ahead(returning(SMALL)[0], 6, lambda value: False)
        assert await stopped == 1
        assert handles.current().result_bytes_coming == 0

    test()


def test_what_failed_fires_would_have_returned_is_not_on_its_way(room_for_four):
    failure = Failure(ErrorCode.OUT_OF_MEMORY, "no pages")

    @on_engine(count_up, info={"context_length": 1 << 20}, faults={2: failure})
    async def test(hub):
        pipe, (fwd, result) = Pipeline(), returning(SMALL)
        pipe.submit_frame([fwd] * 4)
        with pytest.raises(InferletError, match="no pages"):
            for _ in range(4):
                await result
        assert handles.current().result_bytes_coming == 0

    test()
