"""Working sets: what is frozen, forks, and who may use one (contract, 11)."""

import gc

import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    PipelineClosed,
    WorkingSet,
    constant,
    dtype,
)
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from tests.inferlet.support import appending, count_up, greedy, on_engine, putting, sent, settle


@on_engine(count_up)
async def test_a_new_set_is_empty(hub):
    assert WorkingSet().folded() == 0


@on_engine(count_up)
async def test_host_known_rows_count_at_once_and_device_made_ones_when_settled(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1, 2, 3], putting(tok))[0])
    assert ws.folded() == 3
    fwd, result = appending(ws, tok, greedy(tok))
    pipe.submit(fwd)
    assert ws.folded() == 3
    await result
    assert ws.folded() == 4


@on_engine(count_up)
async def test_device_made_absent_rows_do_not_count(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([3], dtype.i32)
    pipe.submit(appending(ws, [1], lambda: tok.put(constant([5, -1, -1], dtype.i32)))[0])
    fwd, done = appending(ws, tok, lambda: None)
    pipe.submit(fwd)
    await done
    assert (ws.folded(), ws._least_extent) == (2, 2)


# ---- fork


@on_engine(count_up)
async def test_a_fork_has_the_state_after_all_passes_submitted_before(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1, 2], putting(tok))[0])
    dec, result = appending(ws, tok, greedy(tok))
    pipe.submit(dec)
    child = ws.fork(pipe)
    pipe.submit(dec)
    assert (ws.folded(), child.folded()) == (2, 2)
    await result
    await result
    # The fire before the fork counts for both, the one after it for the parent alone.
    assert (ws.folded(), child.folded()) == (4, 3)
    assert hub.worker.sets_ever[1] == [1, 2, 2]


@on_engine(count_up)
async def test_neither_sees_the_others_rows_after_a_fork(hub):
    ws, pipe, other = WorkingSet(), Pipeline(), Pipeline()
    pipe.submit(appending(ws, [1, 2])[0])
    child = ws.fork(pipe)
    other.submit(appending(child, [8])[0])  # a child starts free: any pipeline
    pipe.submit(appending(ws, [9, 9])[0])
    await settle()
    assert hub.worker.sets_ever == {0: [1, 2, 9, 9], 1: [1, 2, 8]}
    assert (ws.folded(), child.folded()) == (4, 3)


@on_engine(count_up)
async def test_a_fork_of_a_fork_counts_what_its_grandparent_has_in_flight(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1], putting(tok))[0])
    dec, result = appending(ws, tok, greedy())
    pipe.submit(dec)
    grandchild = ws.fork(pipe).fork(pipe)
    await result
    assert grandchild.folded() == 2


@on_engine(count_up)
async def test_fork_needs_an_open_pipeline_that_has_no_rival(hub):
    ws, pipe, other = WorkingSet(), Pipeline(), Pipeline()
    fwd, done = appending(ws, [1], lambda: None)
    pipe.submit(fwd)
    with pytest.raises(InferletError, match="busy"):
        ws.fork(other)
    await done
    ws.fork(other)
    other.close()
    with pytest.raises(PipelineClosed):
        ws.fork(other)
    with pytest.raises(TypeError):
        ws.fork(None)


# ---- users


@on_engine(count_up)
async def test_a_set_is_used_by_one_pipeline_at_a_time(hub):
    ws, one, two = WorkingSet(), Pipeline(), Pipeline()
    fwd, done = appending(ws, [1], lambda: None)
    rival, _ = appending(ws, [2])
    one.submit(fwd)
    with pytest.raises(InferletError, match=r"busy.*test_working_set.py"):
        two.submit(rival)
    await done
    two.submit(rival)
    with pytest.raises(InferletError, match="busy"):
        one.submit(fwd)


@on_engine(count_up, faults={2: Failure(ErrorCode.PROGRAM_FAULT, "a kernel raised")})
async def test_after_a_failure_a_set_is_as_after_the_last_commit_and_free(hub):
    ws, one, two = WorkingSet(), Pipeline(), Pipeline()
    fwd, done = appending(ws, [1, 1], lambda: None)
    one.submit(fwd)
    one.submit(fwd)
    child = ws.fork(one)
    one.submit(fwd)
    assert (ws.folded(), child.folded()) == (6, 4)
    with pytest.raises(InferletError, match="a kernel raised"):
        await done
    assert (ws.folded(), child.folded()) == (2, 2)
    again, done = appending(ws, [3], lambda: None)
    two.submit(again)
    await done
    assert (ws.folded(), hub.worker.sets_ever[0]) == (3, [1, 1, 3])


# ---- release


@on_engine(count_up)
async def test_dropping_the_handle_drops_the_set_after_its_fires(hub):
    gc.disable()
    try:
        ws, pipe = WorkingSet(), Pipeline()
        pipe.submit(appending(ws, [1], lambda: None)[0])
        del ws
        assert not sent(hub, m.DropWorkingSet)
        await settle()
    finally:
        gc.enable()
    kinds = [type(c).__name__ for c in sent(hub, m.Submit, m.DropPass, m.DropWorkingSet)]
    assert kinds == ["Submit", "DropPass", "DropWorkingSet"]
