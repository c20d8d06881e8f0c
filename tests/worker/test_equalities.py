"""One program, many engines: what it shows is the same to the last bit on the tiny model."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings

from inferlet.testing import Client, run_with
from tests.worker import sdk_hub
from tests.worker.equality_script import VOCABULARY, play, scripts
from worker.model.tiny import TinyModel

INFO = {"output_vocab_size": VOCABULARY, "vocab_size": VOCABULARY, "context_length": 400}
SMALL = {"row_budget": 5, "short_rows": 2, "min_chunk": 1}
CROWDED = {"row_budget": 16, "short_rows": 4, "min_chunk": 2, "idle_waves": 1, "tenure_waves": 2}

#: (what the hub is made with, what the program is told)
ENGINES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "prompts in chunks": ({"changes": SMALL}, {}),
    "without a prefix cache": ({"changes": {"prefix_cache": False}}, {}),
    "a second and a third time, from the cache": ({}, {"again": 2}),
    "frames of one pass": ({"frame_size": 1}, {}),
    "frames of four passes": ({"frame_size": 4}, {}),
    "waves that overlap": ({"overlap": True}, {}),
    "among forty others": ({}, {"crowd": 40}),
    "among others who want its pages": ({"num_pages": 40, "changes": CROWDED}, {"crowd": 12}),
}


@pytest.fixture(scope="module", autouse=True)
def tiny_model():
    make = sdk_hub.FunctionModel
    sdk_hub.FunctionModel = lambda info, function: TinyModel(
        vocab_size=VOCABULARY, page_size=4, context_length=INFO["context_length"]
    )
    yield
    sdk_hub.FunctionModel = make


def shown(script: list, made: dict[str, Any], told: dict[str, int]) -> list:
    made = dict(made)
    engine = {"frame_size": made.pop("frame_size", 2)}
    hub = type("Hub", (sdk_hub.WorkerHub,), made)(Client(), info=INFO, engine=engine)
    seen = asyncio.run(run_with(hub, play, {"script": script, **told}))
    assert hub.real.state.swap._next > 0 or hub.num_pages > 1000, "nobody was suspended"
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=3, deadline=None)
@given(script=scripts)
def test_i4_a_program_shows_the_same_on_every_engine(engine, script):
    assert shown(script, *ENGINES[engine]) == shown(script, {}, {})
