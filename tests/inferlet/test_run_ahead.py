"""run_ahead: what on_token gets and gives (contract, 14.1)."""

import asyncio
import functools

import numpy as np
import pytest

from inferlet import (
    Channel,
    InferletError,
    Pipeline,
    WorkingSet,
    dtype,
)
from inferlet.runtime import run
from ipc import messages as m
from tests.inferlet.support import appending, count_up, on_engine, putting, sent, settle
from tests.inferlet.runs import decoding, history


# ---- what on_token gets and gives


@on_engine(count_up)
async def test_on_token_that_awaits_a_later_fire_of_its_run_fails_at_once(hub):
    ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
    dec, result = decoding(ws, tok, out.capacity(4))

    async def takes_twice(t):
        assert await out.take() == t
        await out.take()

    async def awaits_its_result(t):
        await out.take()
        await result

    for on_token in (takes_twice, awaits_its_result):
        with pytest.raises(InferletError, match="waits for a later fire of that run"):
            await asyncio.wait_for(pipe.run_ahead(dec, 4, on_token), 60)
    assert ws.folded() == 2


@on_engine(count_up)
async def test_a_task_made_by_on_token_may_await_later_fires(hub):
    ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
    dec, _ = decoding(ws, tok, out.capacity(4))
    tasks = []

    async def take():
        return int(await out.take())

    async def on_token(t):
        tasks.append(asyncio.ensure_future(take()))
        tasks.append(asyncio.ensure_future(take()))
        await asyncio.sleep(0)

    assert await pipe.run_ahead(dec, 4, on_token) == 4
    assert await asyncio.gather(*tasks[:4]) == [1, 2, 3, 4]
    for extra in await asyncio.gather(*tasks[4:], return_exceptions=True):
        assert isinstance(extra, InferletError)


async def await_task(task):
    await task


async def await_with_others(task):
    await asyncio.gather(task, asyncio.sleep(0))


async def await_in_a_group(task):
    async def pass_on():
        await task

    async with asyncio.TaskGroup() as group:
        group.create_task(pass_on())


async def await_by_wait(task):
    await asyncio.wait([task])
    task.result()


async def await_with_a_timeout(task):
    await asyncio.wait_for(task, 60)


WAYS = (await_task, await_with_others, await_in_a_group, await_by_wait, await_with_a_timeout)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["channel", "result"])
def test_on_token_that_awaits_a_task_that_waits_for_the_run_fails(monkeypatch, way, what):
    monkeypatch.setattr(run, "STANDSTILL_SECONDS", 0.01)

    @on_engine(count_up)
    async def test(hub):
        ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
        dec, result = decoding(ws, tok, out.capacity(4))

        async def take_two():
            for _ in range(2):
                await (result if what == "result" else out.take())

        async def on_token(*_):
            await way(asyncio.ensure_future(take_two()))

        with pytest.raises((InferletError, ExceptionGroup)) as raised:
            await asyncio.wait_for(pipe.run_ahead(dec, 4, on_token), 20)
        error = raised.value
        if isinstance(error, ExceptionGroup):
            (error,) = error.exceptions
        assert "waits for a later fire of that run" in str(error)
        assert ws.folded() == 1

    test()


def test_on_token_may_await_a_task_that_waits_for_the_run_and_for_something_else(monkeypatch):
    """Whoever gives that goes on: what waits for the run is not touched."""
    monkeypatch.setattr(run, "STANDSTILL_SECONDS", 0.005)

    @on_engine(count_up)
    async def test(hub):
        ws, pipe, tok, out = WorkingSet(), Pipeline(), Channel.from_([0]), Channel((), dtype.i32)
        dec, _ = decoding(ws, tok, out.capacity(4))
        taking, done = [], asyncio.Event()

        async def take():
            return [int(await out.take()) for _ in range(3)]

        async def on_token(t):
            if not taking:
                taking.append(asyncio.ensure_future(take()))
                asyncio.get_running_loop().call_later(0.05, done.set)
                await asyncio.wait([taking[0], asyncio.ensure_future(done.wait())],
                                   return_when=asyncio.FIRST_COMPLETED)

        assert await pipe.run_ahead(dec, 3, on_token) == 3
        assert await taking[0] == [1, 2, 3]

    test()


@on_engine(count_up)
async def test_on_token_is_called_once_a_fire_in_order(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)
    assert await pipe.run_ahead(dec, 20, seen.append) == 20
    assert seen == list(range(1, 21))
    assert (ws.folded(), history(hub)) == (20, list(range(20)))


@on_engine(count_up)
async def test_on_token_may_be_async(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = decoding(ws, tok)

    async def on_token(t):
        await asyncio.sleep(0)
        seen.append(t)
        return t < 7

    assert await pipe.run_ahead(dec, 20, on_token) == 7
    assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("value, stops", [
    (False, True), (np.False_, True), (None, False), (0, False), ([], False), (True, False),
    (np.True_, False), (np.int32(0), False), ("", False),
])  # fmt: skip
def test_false_alone_stops(value, stops):
    @on_engine(count_up)
    async def run(hub):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        assert await Pipeline().run_ahead(dec, 5, lambda t: value) == (1 if stops else 5)

    run()


@on_engine(count_up)
async def test_a_value_goes_to_whatever_takes_a_positional_argument(hub):
    class Callee:
        def __call__(self, t):
            seen.append(t)

    def with_default(t=None):
        seen.append(t)

    def with_star(*args):
        seen.append(args)

    seen = []
    partial = functools.partial(lambda a, t: seen.append(t), 0)
    for callee in (Callee(), with_default, with_star, partial):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        await Pipeline().run_ahead(dec, 1, callee)
    assert seen == [1, 1, (1,), 1]


@on_engine(count_up)
async def test_without_an_argument_on_token_takes_what_it_wants(hub):
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel.from_([0])
    out = Channel([1], dtype.i32).capacity(7)
    dec, result = decoding(ws, tok, out)
    seen = []

    async def on_token():
        seen.append((await out.take_scalar(), await result))

    assert await pipe.run_ahead(dec, 10, on_token) == 10
    assert seen == [(i, i) for i in range(1, 11)]


@on_engine(count_up)
async def test_a_result_that_on_token_did_not_await_is_dropped(hub):
    ws, pipe, tok, calls = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, result = decoding(ws, tok)
    assert await pipe.run_ahead(dec, 20, lambda: calls.append(1)) == 20
    with pytest.raises(InferletError, match="nothing to await"):
        await result
    pipe.submit(dec)
    assert (await result, len(calls)) == (21, 20)


@on_engine(count_up)
async def test_results_before_the_run_are_kept(hub):
    ws, pipe, tok, seen = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, result = decoding(ws, tok)
    pipe.submit(dec)
    pipe.submit(dec)
    await pipe.run_ahead(dec, 5, lambda t: seen.append(t))
    assert ([await result, await result], seen) == ([1, 2], [3, 4, 5, 6, 7])


@on_engine(count_up)
async def test_without_an_epilogue_value_on_token_gets_nothing(hub):
    ws, pipe, tok, calls = WorkingSet(), Pipeline(), Channel.from_([0]), []
    dec, _ = appending(ws, tok, putting(tok))
    assert await pipe.run_ahead(dec, 3, lambda *args: calls.append(args)) == 3
    assert calls == [()] * 3


@pytest.mark.parametrize("budget", [0, -1, np.int64(0)])
def test_no_budget_returns_at_once(budget):
    @on_engine(count_up)
    async def run(hub):
        dec, _ = decoding(WorkingSet(), Channel.from_([0]))
        assert await Pipeline().run_ahead(dec, budget, print) == 0
        await settle()
        assert not sent(hub, m.DefinePass, m.RunAhead)

    run()


@on_engine(count_up)
async def test_wrong_arguments_are_type_errors(hub):
    pipe, (dec, _) = Pipeline(), decoding(WorkingSet(), Channel.from_([0]))
    for arguments in ((dec, 1.5, print), (dec, 1, None), (None, 1, print), (dec, True, print)):
        with pytest.raises(TypeError):
            await pipe.run_ahead(*arguments)
