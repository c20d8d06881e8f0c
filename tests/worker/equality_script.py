"""Random programs whose every logit can be seen, for engines that must agree to the last bit.

`play(script)` is an inferlet's `main`. Beside it may run `crowd` others, which do as they like.
"""

import asyncio
import random
from typing import Any

from hypothesis import strategies as st

from inferlet import (
    Channel,
    ForwardPass,
    Pipeline,
    StateGeometry,
    WorkingSet,
    intrinsics,
    reduce_argmax,
)

VOCABULARY = 64

rows = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=11)
which = st.integers(0, 9)
step = st.one_of(
    st.tuples(st.just("append"), which, rows),
    st.tuples(st.just("masked"), which, rows),
    st.tuples(st.just("run"), which, st.tuples(st.integers(1, 6), st.integers(1, 6))),
    st.tuples(st.just("frame"), which, st.integers(1, 5)),
    st.tuples(st.just("fork"), which, st.none()),
    st.tuples(st.just("draft"), which, rows),
)
scripts = st.builds(
    lambda first, rest: [("append", 0, first), *rest],
    st.lists(st.integers(1, VOCABULARY - 1), min_size=6, max_size=20),
    st.lists(step, min_size=2, max_size=7),
)


def show(logits: Any) -> Any:
    """What is seen of them: all, unless a test replaces this."""
    return logits.tolist()


def random_script(choice: random.Random) -> list:
    """One of the same kind, for the others."""

    def some() -> list[int]:
        return [choice.randrange(1, VOCABULARY) for _ in range(choice.randint(1, 11))]

    return [
        ("append", 0, some() + some()),
        ("run", 0, (4, 3)),
        choice.choice([("fork", 0, None), ("draft", 0, some()), ("masked", 0, some())]),
        ("frame", choice.randrange(2), 2),
    ]


async def play(case: dict) -> list:
    own = asyncio.create_task(_play(case["script"]))
    others = [
        asyncio.create_task(_play(random_script(random.Random(number))))
        for number in range(case.get("crowd", 0))
    ]
    seen = await own
    for again in range(case.get("again", 0)):
        assert seen == await _play(case["script"]), "another time it shows something else"
    await asyncio.gather(*others)
    return seen


async def _play(script: list) -> list:
    branches = [_Branch(WorkingSet(), 0, 1)]
    return [
        await getattr(branches[number % len(branches)], kind)(given, branches)
        for kind, number, given in script
    ]


def _logits() -> Any:
    return intrinsics.output(0, "logits")


class _Branch:
    def __init__(self, ws: WorkingSet, length: int, token: int) -> None:
        self.ws, self.length, self.token, self.pipe = ws, length, token, Pipeline()

    def _pass(self, tokens: Any, geometry: StateGeometry | None = None) -> ForwardPass:
        fwd = ForwardPass()
        fwd.embed(tokens)
        fwd.state([self.ws], geometry or StateGeometry.folding())
        return fwd

    async def append(self, tokens: list[int], branches: list, mask: bool = False) -> list:
        fwd = self._pass(tokens)
        end = self.length + len(tokens)
        if mask:
            fwd.mask([[slot <= row for slot in range(end)] for row in range(self.length, end)])
        result = fwd.epilogue(_logits)
        self.pipe.submit(fwd)
        seen, self.length = await result, end
        self.token = int(seen.argmax())
        return [show(seen), self.ws.folded()]

    async def masked(self, tokens: list[int], branches: list) -> list:
        return await self.append(tokens, branches, mask=True)

    def _decode(self) -> tuple[ForwardPass, Any]:
        token = Channel.from_([self.token])
        fwd = self._pass(token)

        def choose() -> Any:
            best = reduce_argmax(_logits())
            token.put(best)
            return best, _logits()

        return fwd, fwd.epilogue(choose)

    async def run(self, given: tuple[int, int], branches: list) -> list:
        budget, stop = given
        fwd, _ = self._decode()
        seen: list = []

        def on_token(result: tuple) -> bool:
            seen.append(show(result[1]))
            self.token = int(result[0])
            return len(seen) < stop

        self.length += await self.pipe.run_ahead(fwd, budget, on_token)
        return [seen, self.ws.folded()]

    async def frame(self, count: int, branches: list) -> list:
        fwd, result = self._decode()
        self.pipe.submit_frame([fwd] * count)
        seen = []
        for _ in range(count):
            token, logits = await result
            seen.append(show(logits))
            self.token = int(token)
        self.length += count
        return [seen, self.ws.folded()]

    async def fork(self, _: None, branches: list) -> list:
        child = _Branch(self.ws.fork(self.pipe), self.length, self.token)
        branches.append(child)
        return []

    async def draft(self, tokens: list[int], branches: list) -> list:
        """Rows placed at the end and not frozen; then the first of them alone, frozen."""
        first, seen = self.length, []
        for kept in (tokens, tokens[:1]):
            at = list(range(first, first + len(kept)))
            fold = [len(kept)] if kept != tokens or len(tokens) == 1 else [0]
            geometry = StateGeometry(positions=at, slots=at, kv_len=[at[-1] + 1], fold=fold)
            fwd = self._pass(kept, geometry)
            result = fwd.epilogue(_logits)
            self.pipe.submit(fwd)
            logits = await result
            seen.append(show(logits))
            if fold != [0]:
                break
        self.length, self.token = first + 1, int(logits.argmax())
        return [seen, self.ws.folded()]
