"""What an epilogue returns: one value a fire, awaited in the order of submission."""

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from inferlet.errors import InferletError, with_hint
from inferlet.runtime import cells, handles
from inferlet.runtime.waiting import Mailbox

if TYPE_CHECKING:
    from inferlet.forward import ForwardPass
    from inferlet.runtime.binding import BoundPass

Tensors = tuple[bytes, ...]


class Results:
    """The awaitable that `epilogue` gives: each await is the result of the next fire."""

    def __init__(self, fwd: "ForwardPass") -> None:
        self._label = fwd._label  # not the pass itself: it would live as long as this
        self._bound: BoundPass | None = None
        self._mailbox: Mailbox[Tensors] = Mailbox()
        self._settlings: list[asyncio.Future] = []

    def __await__(self) -> Generator[Any, None, Any]:
        return self._next().__await__()

    async def _next(self) -> Any:
        bound = self._bound
        if bound is None:
            raise self._nothing()
        if bound.returns_value:
            return self._value(await self._mailbox.next(self._refusal))
        await self._all_settled(bound)
        return None

    def _bind(self, bound: "BoundPass") -> None:
        self._bound = bound

    # ---- values

    @property
    def num_pending(self) -> int:
        """Results of accepted fires that nobody took yet."""
        return len(self._mailbox.items) + (self._bound.num_unsettled if self._bound else 0)

    @property
    def num_coming(self) -> int:
        """Those of `num_pending` that are not here yet."""
        return self.num_pending - len(self._mailbox.items)

    def add(self, tensors: Tensors) -> None:
        self._mailbox.add(tensors)

    def drop(self, tensors: Tensors) -> None:
        """Forgets a result that `on_token` did not await, unless somebody else waits for it."""
        items = self._mailbox.items
        if items and items[-1] is tensors and not self._mailbox.is_awaited:
            items.pop()

    def _value(self, tensors: Tensors) -> Any:
        epilogue = self._bound.epilogue
        types = epilogue.result_types
        return epilogue.rebuild([cells.decode(d, t) for d, t in zip(tensors, types, strict=True)])

    # ---- waiting

    @property
    def waiting(self) -> list[asyncio.Future]:
        return self._mailbox.waiting

    def wake(self) -> None:
        """A fire has settled, or nothing more will come."""
        self._mailbox.wake()
        waiting, self._settlings = self._settlings, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _all_settled(self, bound: "BoundPass") -> None:
        target = bound.num_accepted
        if not target:
            raise self._nothing()
        while bound.num_settled < target:
            failure = bound.pipeline.failure or handles.current().failure
            if failure:
                raise failure()
            future = asyncio.get_running_loop().create_future()
            self._settlings.append(future)
            await future

    def _refusal(self, ahead: int) -> InferletError | None:
        bound = self._bound
        if len(self._mailbox.items) > ahead:
            return None
        failure = bound.pipeline.failure or handles.current().failure
        if failure:
            return failure()
        run = bound.pipeline.run
        if self.num_pending > ahead:
            return None
        if run and run.bound is bound:
            return bound.pipeline.fills_later()
        return self._nothing()

    def _nothing(self) -> InferletError:
        return InferletError(
            with_hint(
                f"nothing to await: every accepted fire of {self._label} has given its result",
                "submit the pass before awaiting its epilogue",
            )
        )
