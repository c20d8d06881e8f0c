"""The words of errors, all in tests/golden/errors.txt, so that a change of them is seen and read.

`UPDATE_GOLDEN=1 tests/run tests/inferlet/test_error_texts.py` writes the file anew.
"""

import os
import re
from pathlib import Path

import pytest

from inferlet import *
from tests.eta_support import traced
from tests.inferlet.support import appending, count_up, greedy, on_engine
from tests.inferlet.test_trace_errors import MISUSES

GOLDEN = Path(__file__).parents[1] / "golden/errors.txt"


def out_of_room(pipe):
    channel = Channel.from_([1]).named("token")
    channel.put([2])


def late_capacity(pipe):
    channel = Channel.from_([1])
    pipe.submit(appending(WorkingSet(), channel)[0])
    channel.capacity(2)


def missing_cell(pipe):
    pipe.submit(appending(WorkingSet(), Channel([1], dtype.i32))[0])


def full_ring(pipe):
    out = Channel((), dtype.i32).named("out")
    fwd, _ = appending(WorkingSet(), [1], lambda: out.put(1))
    pipe.submit(fwd)
    pipe.submit(fwd)


def wrong_end_put(pipe):
    out = Channel([1], dtype.i32)
    pipe.submit(appending(WorkingSet(), [1], lambda: out.put(constant([1])))[0])
    out.put(3)


async def wrong_end_take(pipe):
    tokens = Channel.from_([1])
    pipe.submit(appending(WorkingSet(), tokens)[0])
    await tokens.take()


async def nothing_to_take(pipe):
    await Channel([1], dtype.i32).take()


async def scalar_of_two(pipe):
    await Channel([2], dtype.i32).take_scalar()


def set_without_a_cell(pipe):
    Channel([1], dtype.i32).set(1)


def two_pipelines(pipe):
    tokens = Channel.from_([1]).capacity(2)
    pipe.submit(appending(WorkingSet(), tokens)[0])
    tokens.put([1])
    Pipeline().submit(appending(WorkingSet(), tokens)[0])


def bound_twice(pipe):
    fwd, _ = appending(WorkingSet(), [1])
    fwd.embed([2])


def bound_late(pipe):
    fwd, _ = appending(WorkingSet(), [1])
    pipe.submit(fwd)
    fwd.epilogue(greedy())


def no_state(pipe):
    fwd = ForwardPass()
    fwd.embed([1])
    pipe.submit(fwd)


def strange_token(pipe):
    pipe.submit(appending(WorkingSet(), [1, 999])[0])


async def nothing_to_await(pipe):
    await appending(WorkingSet(), [1], greedy())[1]


def closed(pipe):
    pipe.close()
    pipe.submit(appending(WorkingSet(), [1])[0])


async def a_failed_fire(pipe):
    bad, _ = appending(WorkingSet(), [1], lambda: token.put(constant([999])))
    token = Channel([1], dtype.i32)
    pipe.submit(bad)
    fwd, result = appending(WorkingSet(), token, greedy())
    pipe.submit(fwd)
    await result


HOST = [
    out_of_room, late_capacity, missing_cell, full_ring, wrong_end_put, wrong_end_take,
    nothing_to_take, scalar_of_two, set_without_a_cell, two_pipelines, bound_twice, bound_late,
    no_state, strange_token, nothing_to_await, closed, a_failed_fire,
]  # fmt: skip


def without_places(error):
    text = re.sub(r"(?:/[\w./-]*/)?(\w+)\.py:\d+", "app.py:[LINE]", str(error))
    return f"{type(error).__name__}: {text}"


def text_of_misuse(stage):
    with pytest.raises(TraceError) as error:
        traced(stage, label="epilogue of pass 3")
    return without_places(error.value)


def text_on_host(act):
    found = []

    @on_engine(count_up)
    async def run(hub):
        with pytest.raises(InferletError) as error:
            made = act(Pipeline())
            if made is not None:
                await made
        found.append(without_places(error.value))

    run()
    return found[0]


def test_errors_keep_their_words():
    sections = {name: text_of_misuse(stage) for name, (stage, _) in MISUSES.items()}
    sections |= {act.__name__.replace("_", " "): text_on_host(act) for act in HOST}
    text = "".join(f"== {name}\n{said}\n\n" for name, said in sections.items())
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
