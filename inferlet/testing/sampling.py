"""Tokens of a sampler without a model: what a test of a sampler needs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inferlet import Channel, ForwardPass, Pipeline, StateGeometry, WorkingSet
from inferlet.dtypes import dtype
from inferlet.eta import constant, intrinsics
from inferlet.testing.harness import run

#: From logits, f32 `[vocab]`, and the state of the random generator, u32 `[2]`, to a token.
Sampler = Callable[[Any, Any], Any]


def draw(
    make: Callable[[], Sampler],
    logits: Sequence[float] | Callable[[list[int]], Sequence[float]],
    count: int,
    *,
    seed: int = 0,
    vocab_size: int | None = None,
) -> list[int]:
    """`count` tokens of the sampler that `make()` gives, one fire each. `make` may make channels.

    `logits`: of every token alike, or a function of the tokens so far (then `vocab_size` is needed).
    """
    if not callable(logits):
        fixed = np.asarray(logits, np.float32)
        vocab_size, logits = len(fixed), lambda tokens: fixed

    async def main() -> list[int]:
        sampler = make()
        token = Channel.from_([0])
        rng = Channel.from_([seed, 0], dtype=dtype.u32)
        fwd = ForwardPass()
        fwd.embed(token)
        fwd.state([WorkingSet()], StateGeometry.folding())

        def choose() -> Any:
            state = rng.take()
            chosen = sampler(intrinsics.output(0, "logits"), state)
            rng.put(state + constant([0, 1], dtype.u32))
            token.put(chosen)
            return chosen

        fwd.epilogue(choose)
        tokens: list[int] = []
        await Pipeline().run_ahead(fwd, count, lambda chosen: tokens.append(chosen))
        return tokens

    return run(main, model=logits, info={"output_vocab_size": vocab_size})
