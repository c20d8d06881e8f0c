"""The SDK's own tests again, with the real scheduler, pages, rings and executor behind it."""

import pytest

from tests.inferlet import support
from tests.inferlet.test_channel import *
from tests.inferlet.test_channel_vectors import *
from tests.inferlet.test_forward import *
from tests.inferlet.test_geometry import *
from tests.inferlet.test_pipeline import *
from tests.inferlet.test_random_programs import *
from tests.inferlet.test_random_stages import *
from tests.inferlet.test_run_ahead import *
from tests.inferlet.test_run_ahead_explicit import *
from tests.inferlet.test_samplers import *
from tests.inferlet.test_working_set import *
from tests.worker.sdk_hub import OverlappingHub, WorkerHub


@pytest.fixture(autouse=True, params=[WorkerHub, OverlappingHub])
def real_engine(request, monkeypatch):
    monkeypatch.setattr(support, "Hub", request.param)


@support.on_engine(count_up)
async def test_a_run_that_was_dropped_for_an_unknown_failure_may_be_stopped(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1], lambda: tok.put(constant([999], dtype.i32)))[0])
    dec, _ = appending(ws, tok, greedy(tok))
    hub.is_silent = True  # the failure of the next fire is on its way
    pipe.submit(dec)
    await settle()
    run = asyncio.create_task(pipe.run_ahead(dec, 9, print))
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await settle()
    assert hub.real.state.processes, "the engine has dropped the process"


@support.on_engine(count_up)
async def test_a_put_that_counted_on_an_unknown_failure_is_forgiven(hub):
    ws, pipe, feed = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    bad = Channel([1], dtype.i32)
    pipe.submit(appending(ws, [1], lambda: bad.put(constant([999], dtype.i32)))[0])
    failing, _ = appending(ws, bad, lambda: feed.take() * 1)
    hub.is_silent = True
    feed.put(1)
    pipe.submit(failing)
    await settle()
    feed.put(2)  # fits if the fire had taken the first
    await settle()
    assert hub.real.state.processes, "the engine has dropped the process"
