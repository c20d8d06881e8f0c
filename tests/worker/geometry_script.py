"""Random inferlets that place rows where they like, written down as lists of steps.

`play(steps)` is an inferlet's `main`: it gives all that such a program can see. So two engines agree
on a script when they give the same.
"""

from typing import Any

from hypothesis import strategies as st

from inferlet import (
    Channel,
    ForwardPass,
    InferletError,
    Pipeline,
    StateGeometry,
    WorkingSet,
    dtype,
    intrinsics,
    reduce_argmax,
)

MOST_SLOTS = 14
ALL = 0xFFFFFFFF

tokens = st.lists(st.sampled_from([5, 6, 7, 8, -1]), min_size=1, max_size=5)


@st.composite
def placements(draw: st.DrawFn) -> dict:
    """Rows of an explicit pass: mostly near the end of a set, or anywhere."""
    rows = draw(tokens)
    first = draw(st.integers(0, MOST_SLOTS - 6))
    slots = list(range(first, first + len(rows)))
    if draw(st.integers(0, 3)) == 0:
        size = len(rows)
        slots = draw(st.permutations(range(first, first + size + 1)))[:size]
    shift = draw(st.sampled_from([0, 0, 0, 1, 3]))
    kv_len = draw(st.sampled_from([max(slots) + 1, max(slots) + 1, MOST_SLOTS]))
    fold = draw(st.sampled_from([None, 0, 1, 2, ALL]))
    return {
        "tokens": rows, "slots": slots, "positions": [slot + shift for slot in slots],
        "kv_len": kv_len, "fold": fold, "relative": draw(st.booleans()),
        "device": draw(st.booleans()),
    }  # fmt: skip


#: One int a row: bit s says whether slot s is attended, again and again.
masks = st.lists(st.integers(0, 2**20 - 1), min_size=5, max_size=5)
runs = st.fixed_dictionaries(
    {
        "budget": st.integers(1, 5), "stop": st.integers(1, 5), "back": st.integers(0, 2),
        "step": st.integers(0, 2), "fold": st.sampled_from([None, 0, 1, ALL]),
    }
)  # fmt: skip
which = st.integers(0, 2)
step = st.one_of(
    st.tuples(st.just("fold"), which, tokens, st.none() | masks),
    st.tuples(st.just("place"), which, placements(), st.none() | masks),
    st.tuples(st.just("run"), which, runs),
    st.tuples(st.just("fork"), which, which),
    st.tuples(st.just("group"), tokens, tokens),
)
scripts = st.lists(step, min_size=1, max_size=8)


async def play(steps: list) -> list:
    player = _Player()
    return [await player.play(*step) for step in steps]


def _bits(mask: list[int]) -> list[list[bool]]:
    return [[bool(row >> slot % 20 & 1) for slot in range(60)] for row in mask]


class _Player:
    def __init__(self) -> None:
        self.pipe = Pipeline()
        self.sets = [WorkingSet() for _ in range(3)]
        for ws in self.sets:
            ws.reserve(MOST_SLOTS)

    async def play(self, kind: str, *arguments: Any) -> list:
        try:
            seen = await getattr(self, kind)(*arguments)
        except InferletError as error:
            seen = [type(error).__name__]
            self.pipe.close()
            self.pipe = Pipeline()
        return [kind, seen, [ws.folded() for ws in self.sets]]

    async def _fire(self, fwd: ForwardPass, rows: int, lanes: int = 1) -> list:
        fwd.readout(list(range(rows)))
        result = fwd.epilogue(
            lambda: [reduce_argmax(intrinsics.output(lane, "logits")) for lane in range(lanes)]
        )
        self.pipe.submit(fwd)
        return [lane.tolist() if hasattr(lane, "tolist") else lane for lane in await result]

    async def fold(self, which: int, rows: list, mask: list | None) -> list:
        fwd = ForwardPass()
        fwd.embed(rows)
        fwd.state([self.sets[which]], StateGeometry.folding())
        if mask is not None:
            fwd.mask(_bits(mask[: len(rows)]))
        return await self._fire(fwd, len(rows))

    async def place(self, which: int, given: dict, mask: list | None) -> list:
        fwd, ws = ForwardPass(), self.sets[which]
        first = ws.folded() if given["relative"] else 0
        ports = {
            "positions": [p + first for p in given["positions"]],
            "slots": [s + first for s in given["slots"]],
            "kv_len": [given["kv_len"] + first],
        }
        if given["fold"] is not None:
            ports["fold"] = [given["fold"]]
        if given["device"]:
            ports = self._on_device(fwd, ports)
        fwd.embed(given["tokens"])
        fwd.state([ws], StateGeometry(**ports))
        if mask is not None:
            fwd.mask(Channel.from_(_bits(mask[: len(given["tokens"])])))
        return await self._fire(fwd, len(given["tokens"]))

    @staticmethod
    def _on_device(fwd: ForwardPass, ports: dict) -> dict:
        """The same values, but a prologue puts them."""
        feeds = {name: Channel.from_(values, dtype.u32) for name, values in ports.items()}
        made = {name: Channel([len(values)], dtype.u32) for name, values in ports.items()}

        @fwd.prologue
        def _() -> None:
            for name, feed in feeds.items():
                made[name].put(feed.take() + 0)

        return made

    async def run(self, which: int, given: dict) -> list:
        """Fires that go forward by `step`, from `back` before the frozen end; stopped early."""
        ws, fwd, seen = self.sets[which], ForwardPass(), []
        first = max(ws.folded() - given["back"], 0)
        ws.reserve(first + 12)
        at, tok = Channel.from_([first], dtype.u32), Channel.from_([5])
        slot, length = Channel([1], dtype.u32), Channel([1], dtype.u32)

        @fwd.prologue
        def _() -> None:
            here = at.take()
            slot.put(here)
            length.put(here + 1)
            at.put(here + given["step"])

        fold = None if given["fold"] is None else [given["fold"]]
        fwd.embed(tok)
        fwd.state([ws], StateGeometry(positions=slot, slots=slot, kv_len=length, fold=fold))

        def choose() -> Any:
            token = reduce_argmax(intrinsics.output(0, "logits"))
            tok.put(token)
            return token

        fwd.epilogue(choose)

        def on_token(token: int) -> bool:
            seen.append([token, ws.folded()])
            return len(seen) < given["stop"]

        try:
            await self.pipe.run_ahead(fwd, given["budget"], on_token)
        except InferletError as error:
            self.pipe.close()
            self.pipe = Pipeline()
            seen.append(type(error).__name__)
        return seen

    async def fork(self, parent: int, child: int) -> list:
        self.sets[child] = self.sets[parent].fork(self.pipe)
        return []

    async def group(self, left: list, right: list) -> list:
        """Two sets side by side, which see each other."""
        fwd = ForwardPass()
        fwd.embed(left + right, indptr=[0, len(left), len(left) + len(right)])
        fwd.state(self.sets[:2], StateGeometry.folding())
        fwd.group(0, 9)
        fwd.group(1, 9)
        return await self._fire(fwd, len(left) + len(right), 2)
