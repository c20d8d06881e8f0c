"""The channel scenarios of the contract's vectors, through the SDK's own objects.

`tests/worker/test_sdk.py` runs them again on the real engine.
"""

import asyncio
import contextlib
from typing import Any

import numpy as np
import pytest

import inferlet
from inferlet import Channel, ForwardPass, Pipeline, StateGeometry, WorkingSet, eta
from ipc.types import DType
from tests.eta_support import VECTORS
from tests.inferlet.support import on_engine, settle

SCENARIOS = VECTORS["channels"]


class Scenario:
    """The channels, passes and the one pipeline of a scenario."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.channels = {name: _channel(name, spec) for name, spec in case["channels"].items()}
        self.passes = {name: self._pass(spec) for name, spec in case["passes"].items()}
        self.pipeline = Pipeline()

    def _pass(self, spec: dict[str, Any]) -> ForwardPass:
        fwd = ForwardPass()
        fwd.embed([1])
        fwd.state([WorkingSet()], StateGeometry.folding())
        for stage in ("prologue", "epilogue"):
            if stage in spec:
                getattr(fwd, stage)(lambda lines=spec[stage]: self._stage(lines))
        return fwd

    def _stage(self, lines: list[dict[str, Any]]) -> None:
        values: dict[str, Any] = {}

        def value_of(word: Any) -> Any:
            return values[word[1:]] if isinstance(word, str) else word

        for line in lines:
            if "put" in line:
                self.channels[line["put"]].put(value_of(line["value"]))
            elif "op" in line:
                operands = [value_of(word) for word in line["args"]]
                attributes = line["attrs"].values()
                values[line["as"]] = getattr(eta, line["op"])(*operands, *attributes)
            else:
                kind = "take" if "take" in line else "read"
                values[line["as"]] = getattr(self.channels[line[kind]], kind)()

    async def step(self, step: dict[str, Any]) -> Any:
        """One step; what it gives."""
        if "fire" in step:
            self.pipeline.submit(self.passes[step["fire"]])
            return await settle()
        (kind,) = {"host_put", "host_set", "host_take", "host_read", "host_take_scalar",
                   "capacity"} & step.keys()  # fmt: skip
        act = getattr(self.channels[step[kind]], kind.removeprefix("host_"))
        if kind == "capacity":
            return act(step["n"])
        if kind in ("host_put", "host_set"):
            return act(step["value"])
        return await asyncio.wait_for(act(), 60)


def _channel(name: str, spec: dict[str, Any]) -> Channel:
    dtype = DType.from_name(spec["dtype"])
    if "seed" in spec:
        channel = Channel.from_(spec["seed"], dtype)
        assert channel.shape == tuple(spec["shape"])
    else:
        channel = Channel(spec["shape"], dtype)
    return channel.capacity(spec["capacity"]).named(name)


def error_class(name: str) -> Any:
    """What an error name of the vectors means, subclasses included. A hang is none."""
    named = {"*": (inferlet.InferletError, TypeError, ValueError), "ValueError": ValueError}
    return named.get(name) or getattr(inferlet, name)


async def play(case: dict[str, Any]) -> None:
    scenario = Scenario(case)
    for number, step in enumerate(case["steps"]):
        place, expected = f"step {number}: {step}", step.get("expect")
        if isinstance(expected, dict):
            with pytest.raises(error_class(expected["error"])):
                await scenario.step(step)
            continue
        with contextlib.suppress(*([error_class(step["may"])] if "may" in step else [])):
            got = await scenario.step(step)
        if expected is not None:
            check(got, expected, step, scenario, place)


def check(got: Any, expected: Any, step: dict[str, Any], scenario: Scenario, place: str) -> None:
    """A read value is the expected one, with exact shape and dtype."""
    if "host_take_scalar" in step:
        assert got == expected and type(got) is type(expected), place
        return
    channel = scenario.channels[step.get("host_take") or step["host_read"]]
    kind = {DType.f32: np.float32, DType.i32: np.int32, DType.u32: np.uint32}[channel.dtype]
    want = np.array(expected, kind)
    assert (got.dtype, got.shape, got.tolist()) == (want.dtype, want.shape, want.tolist()), place


@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: case["id"])
def test_channels_do_what_the_scenario_says(case):
    @on_engine(lambda tokens: 1)
    async def run(hub):
        if "raises" not in case:
            return await play(case)
        with pytest.raises(error_class(case["raises"])):
            await play(case)

    run()
