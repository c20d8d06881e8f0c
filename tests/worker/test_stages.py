"""Prologues and epilogues in the engine: what runs as one call, who fails, what they see."""

from array import array

import pytest

from ipc.errors import ErrorCode
from ipc.eta.graph import HELD
from ipc.types import DType, TensorType
from tests.worker.bench import (
    Bench,
    logits,
    program,
)

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1], [8], [1, 6, 1, 8, 0, 3, 3, 9, 8, 8, 7, 4, 9]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_programs_that_differ_in_a_constant_run_as_one_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(b):
        factor = b.add("constant", (), {"dtype": DType.f32, "shape": ()})
        return [b.add("mul", (b.add("reduce_max", (logits(b),)), factor))]

    from worker.eta.executor import CompiledProgram

    counts = []
    run = CompiledProgram.run

    def counted(self, count, *rest):
        counts.append(count)
        return run(self, count, *rest)

    monkeypatch.setattr(CompiledProgram, "run", counted)
    clients = []
    for factor in (1.0, 2.0, 2.0, -4.0):
        client = bench.client()
        stage = client.stage(program(build), constants=array("f", [factor]).tobytes())
        pass_id = client.define_pass(PROMPTS[1], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
        clients.append(client)
    bench.settle()
    values = [array("f", client.fired()[0].results[0])[0] for client in clients]
    assert counts == [4]
    assert values == [values[0], 2 * values[0], 2 * values[0], -4 * values[0]]


def test_a_kernel_that_raises_fails_the_guilty_instance_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worker.eta.executor import CompiledProgram

    run = CompiledProgram.run

    def touchy(self, count, fronts, outputs, constants, earlier):
        if any((constant == 13.0).any() for constant in constants):
            raise RuntimeError("unlucky")
        return run(self, count, fronts, outputs, constants, earlier)

    monkeypatch.setattr(CompiledProgram, "run", touchy)

    def build(b):
        factor = b.add("constant", (), {"dtype": DType.f32, "shape": ()})
        return [b.add("mul", (b.add("reduce_max", (logits(b),)), factor))]

    clients = []
    for factor in (1.0, 13.0, 2.0):
        client = bench.client()
        stage = client.stage(program(build), constants=array("f", [factor]).tobytes())
        pass_id = client.define_pass(PROMPTS[1], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)
        clients.append(client)
    bench.settle()
    assert [len(client.fired()) for client in clients] == [1, 0, 1]
    (failed,) = clients[1].failures()
    assert failed.failure.code == ErrorCode.PROGRAM_FAULT
    assert failed.failure.stage == "epilogue"
    assert clients[1].length(0) == 0 and clients[1].process.pages == 0


def test_an_epilogue_sees_what_the_prologue_put_and_then_the_front(bench: Bench) -> None:
    client = bench.client()
    cell = TensorType(DType.i32, (1,))
    channel = client.channel(cell, 2, [5])

    def double(b):
        b.put(0, b.add("add", (front := b.take(0), front)))
        return []

    def both(b):
        b.expect(0, HELD)
        return [b.take(0), b.read(0)]

    held, pipeline = client.working_set(), client.pipeline()
    pass_id = client.define_pass(
        [1], [held], readout=[[]],
        prologue=client.stage(program(double), channel),
        epilogue=client.stage(program(both), channel),
    )  # fmt: skip
    client.submit(pipeline, pass_id)
    bench.settle()
    assert [client.fired()[0].results] == [(b"\x0a\0\0\0", b"\x05\0\0\0")]
    assert client.process.channels[channel].held == 0
