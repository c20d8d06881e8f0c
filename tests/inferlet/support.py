"""Runs a test's body as an inferlet on the fake engine, and small passes for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from inferlet import ForwardPass, StateGeometry, intrinsics, reduce_argmax
from inferlet.testing import Client, Hub, run_with
from ipc import messages as m


def on_engine(model: Callable | None = None, **options: Any) -> Callable:
    """Decorates `async def test(hub)`: its body runs as `main` of an inferlet."""

    def decorate(test: Callable[[Hub], Awaitable[None]]) -> Callable[[], None]:
        def run() -> None:
            hub = Hub(Client(stays=True), model, **options)
            asyncio.run(run_with(hub, lambda: test(hub)))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def count_up(tokens: list[int]) -> int:
    """A model that says the length of its history."""
    return len(tokens) % 256


def appending(ws: Any, tokens: Any, epilogue: Callable | None = None) -> tuple[ForwardPass, Any]:
    """A pass that appends `tokens` to one working set."""
    fwd = ForwardPass()
    fwd.embed(tokens)
    fwd.state([ws], StateGeometry.folding())
    return fwd, fwd.epilogue(epilogue) if epilogue else None


def greedy(*puts: Any) -> Callable[[], Any]:
    """An epilogue that returns the most likely token and puts it on the channels."""

    def choose() -> Any:
        token = reduce_argmax(intrinsics.output(0, "logits"))
        for channel in puts:
            channel.put(token)
        return token

    return choose


def putting(*channels: Any) -> Callable[[], None]:
    """An epilogue that puts the most likely token on the channels and returns nothing."""

    def put() -> None:
        greedy(*channels)()

    return put


def sent(hub: Hub, *kinds: type) -> list[m.Command]:
    """Commands of these kinds that the engine got, in order."""
    return [command for command in hub.commands if isinstance(command, kinds)]


async def settle(ticks: int = 200) -> None:
    """Lets every event on its way arrive."""
    for _ in range(ticks):
        await asyncio.sleep(0)


def same(array: Any, expected: Any) -> bool:
    """Equal values, shape and dtype."""
    expected = np.asarray(expected)
    return array.dtype == expected.dtype and np.array_equal(array, expected)
