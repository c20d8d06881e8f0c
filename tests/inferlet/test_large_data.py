"""What the host gives in one command: as much as a frame holds, and a refusal at its line beyond."""

import numpy as np
import pytest

from inferlet import Channel, InferletError, Pipeline, WorkingSet, constant, dtype, reduce_sum
from inferlet.runtime.outbox import check_pass
from ipc import messages as m
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
