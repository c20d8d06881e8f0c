"""`--priority` and `--salt` take effect in the engine, through the hub."""

import json
import subprocess
import sys

import pytest

from tests.end_to_end.conftest import ROOT, environment

pytestmark = pytest.mark.model

CACHED = """
from inferlet import *

async def main(input):
    ws, pipe, fwd = WorkingSet(), Pipeline(), ForwardPass()
    fwd.embed([100 + place * 7 for place in range(200)])
    fwd.state([ws], StateGeometry.folding())
    token = fwd.epilogue(lambda: reduce_argmax(intrinsics.output(0, "logits")))
    pipe.submit(fwd)
    await token
    return ws.cached_tokens()
"""

# Prompts that are computed one after the other: each is more than a wave.
PROMPTS = """
import asyncio, time
from inferlet import *

async def main(input):
    print("ready", flush=True)
    if input["waits"]:
        await session.receive()

    def start(number):
        ws, pipe, fwd = WorkingSet(), Pipeline(), ForwardPass()
        fwd.embed([200 + (number * 7919 + place * 31) % 20000 for place in range(600)])
        fwd.state([ws], StateGeometry.folding())
        token = fwd.epilogue(lambda: reduce_argmax(intrinsics.output(0, "logits")))
        pipe.submit(fwd)
        return ws, pipe, token

    async def finish(ws, pipe, token):
        await token
        return time.monotonic()

    started = [start(number) for number in input["numbers"]]
    first = asyncio.gather(*(finish(*one) for one in started))
    await asyncio.sleep(0)
    print("submitted", flush=True)
    return await first
"""


def test_cached_pages_are_shared_between_equal_salts_only(result, pie, app):
    path = app(CACHED)

    def cached(*words: str) -> int:
        done = pie("run", path, "--no-stdin", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert cached("--salt", "red") == 0
    assert cached("--salt", "blue") == 0
    assert cached() == 0
    page = cached("--salt", "red")
    assert page >= 128 and cached("--salt", "blue") == cached() == page
    assert cached("--salt", "red ") == 0


def test_a_higher_priority_overtakes_prompts_that_came_first(home, app):
    path = app(PROMPTS)

    def start(priority: int, numbers: list[int], **input) -> subprocess.Popen:
        words = [f"--priority={priority}", "--input", json.dumps({"numbers": numbers, **input})]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "pie_cli", "run", path, *words],
            env=environment(home), cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip

    # One that waits is told to begin within milliseconds; a launch could come too late.
    with start(4, [7], waits=True) as high:
        assert any("ready" in line for line in iter(high.stderr.readline, ""))
        with start(-3, [1, 2, 3, 4, 5, 6], waits=False) as low:
            assert any("submitted" in line for line in iter(low.stderr.readline, ""))
            own, _ = high.communicate("go\n", timeout=800)
            rest, _ = low.communicate(timeout=800)
    (overtaking,), others = json.loads(own), json.loads(rest)
    assert overtaking < sorted(others)[-1], "it came last, and was served last"
    assert others == sorted(others), "equal priorities are served in their order"
