"""A process that meets a limit is told which one, so that its end can name it."""

import pytest

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import DType, Limits, TensorType
from tests.worker.bench import Bench, logits, program

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


def test_binding_a_stage_looks_at_each_effect_a_few_times_however_many_channels_it_has():
    """Counted for each channel: with thousands of them, a look at all for each took seconds."""
    looks = 0

    class Effects(tuple):
        def __iter__(self):
            nonlocal looks
            for effect in super().__iter__():
                looks += 1
                yield effect

    bench, count = Bench(), 200
    client = bench.client()

    def build(b):
        for slot in range(count):
            b.put(slot, b.read(slot))
        return [b.add("reduce_argmax", (logits(b),))]

    channels = [client.channel() for _ in range(count)]
    stage = client.stage(program(build), *channels)
    bench.step()
    made = client.process.programs[stage.program_id]
    object.__setattr__(made, "effects", Effects(made.effects))
    client.define_pass([1], [client.working_set()], epilogue=stage)
    bench.step()
    assert not client.goodbye() and client.process.passes
    assert 0 < looks < 30 * 2 * count
