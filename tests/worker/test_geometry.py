"""Explicit placement, masks and groups on the real engine: equal to the fake engine, to folding, and
to being alone."""

import asyncio

from hypothesis import given, settings

from inferlet.testing import Client, Hub, run_with
from tests.worker.geometry_script import play, scripts
from tests.worker.sdk_hub import OverlappingHub, WorkerHub

SIZE = {"info": {"output_vocab_size": 64, "vocab_size": 64, "context_length": 40}}


def played(kind: type[Hub], script: list) -> list:
    hub = kind(Client(stays=True), **SIZE)
    seen = asyncio.run(run_with(hub, play, script))
    if isinstance(hub, WorkerHub):
        hub.real.step()
        hub.real.state.check_integrity()
    return seen


@settings(max_examples=25, deadline=None)
@given(scripts)
def test_any_placement_gives_what_the_fake_engine_gives(script):
    expected = played(Hub, script)
    assert played(WorkerHub, script) == expected
    assert played(OverlappingHub, script) == expected
