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


def test_a_higher_priority_overtakes_prompts_that_came_first(home, pie, app):
    path = app(PROMPTS)

    def words(priority: int, numbers: list[int]) -> list[str]:
        value = json.dumps({"numbers": numbers})
        return ["run", path, "--no-stdin", f"--priority={priority}", "--input", value]

    low = subprocess.Popen(
        [sys.executable, "-m", "pie_cli", *words(-3, [1, 2, 3, 4, 5, 6])],
        env=environment(home), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with low:
        lines = iter(low.stderr.readline, "")
        assert any("submitted" in line for line in lines)
        high = pie(*words(4, [7]))
        assert high.returncode == 0, high.stderr
        rest, _ = low.communicate(timeout=280)
    (overtaking,), others = json.loads(high.stdout), json.loads(rest)
    assert overtaking < sorted(others)[-1], "it came last, and was served last"
    assert others == sorted(others), "equal priorities are served in their order"
