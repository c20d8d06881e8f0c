"""A process that meets a limit is told which one, so that its end can name it."""

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import DType, Limits, TensorType
from tests.worker.bench import Bench

WIDE = TensorType(DType.f32, (1024,))


@pytest.mark.parametrize(
    ("limits", "commands"),
    [
        ({"pipelines": 1}, [m.OpenPipeline(0), m.OpenPipeline(1)]),
        ({"channels": 1}, [m.DefineChannel(0, WIDE, 7)]),
    ],
)
def test_a_process_that_meets_a_limit_is_told_its_key(limits, commands):
    bench = Bench()
    client = bench.client(Limits(**limits))
    client.commands += commands
    bench.step()
    bench.step()
    goodbyes = [event.failure for event in client.events if isinstance(event, m.Goodbye)]
    (limit,) = limits
    assert [(failure.code, failure.limit) for failure in goodbyes] == [(ErrorCode.LIMIT, limit)]
