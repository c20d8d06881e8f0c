"""Accounting of submits (contract, 10.3): what each ring, result queue and working set will hold.

A Ledger plays submits forward without changing anything, so that a refused frame leaves no trace;
`accept` then does the same to the real counts. Fires of a run are accepted as they are delivered.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from inferlet.channel import Channel
from inferlet.errors import InferletError, OutOfMemory, with_hint
from inferlet.runtime import binding, handles
from inferlet.runtime.binding import BoundPass, Plan
from inferlet.working_set import WorkingSet
from ipc.accounting import ChannelEffect

if TYPE_CHECKING:
    from inferlet.forward import ForwardPass

FOREVER = 1 << 62


@dataclass(slots=True)
class LaneCount:
    """Rows that a fire appends to one lane's working set."""

    known: int | None  # what the host knows before it has settled
    default: int  # what it is unless the engine reports another number
    least: int


class Ledger:
    """Submits of one call, one after the other."""

    def __init__(self) -> None:
        self._counts: dict[Channel, int] = {}
        self._popped: dict[Channel, int] = {}
        self._extents: dict[WorkingSet, int] = {}
        self._results: dict[ForwardPass, int] = {}

    def admit(self, fwd: "ForwardPass", bound: BoundPass | Plan) -> None:
        """One more fire of `fwd`; InferletError when it is refused."""
        self._admit_rows(fwd, bound)
        self._admit_result(fwd, bound)
        for channel, effect in bound.effects.items():
            self._admit_channel(fwd, channel, effect)

    def _admit_rows(self, fwd: "ForwardPass", bound: BoundPass | Plan) -> None:
        tokens, skipped = fwd._tokens, 0
        if isinstance(tokens, Channel):
            skipped = self._popped.get(tokens, 0)
            if len(tokens._staged) > skipped:
                binding.check_tokens(tokens._staged[skipped].tolist(), fwd._label)
        limit = handles.current().model.context_length
        counts = lane_counts(tokens, bound.recorded.shape.indptr, skipped)
        for working_set, count in zip(fwd._working_sets, counts, strict=True):
            extent = self._extents.get(working_set, working_set._least_extent) + count.least
            if extent > limit:
                raise InferletError(
                    with_hint(
                        f"{fwd._label} reaches position {extent - 1} in the "
                        f"{working_set._label}; the model's context ends at {limit - 1}",
                        "stop before `model.context_length()`",
                    )
                )
            _check_memory(fwd, extent)
            self._extents[working_set] = extent

    def _admit_result(self, fwd: "ForwardPass", bound: BoundPass | Plan) -> None:
        epilogue = bound.recorded.epilogue
        if epilogue is None or not epilogue.returns_value:
            return
        pending = self._results.get(fwd, fwd._results.num_pending)
        capacity = handles.current().engine.channel_capacity
        if pending >= capacity:
            raise InferletError(
                with_hint(
                    f"{pending} results of {fwd._label} are not awaited; at most {capacity} are "
                    "kept",
                    "await the epilogue once for each submit",
                )
            )
        self._results[fwd] = pending + 1

    def _admit_channel(self, fwd: "ForwardPass", channel: Channel, effect: ChannelEffect) -> None:
        count = self._counts.get(channel, channel._count)
        if effect.needs_front and not count:
            raise InferletError(
                with_hint(
                    f"{fwd._label} reads {channel._label}, which will be empty",
                    "put or seed a cell first",
                )
            )
        pops = _num_popped(effect, count)
        after = count - pops + effect.appends
        if after > channel._capacity:
            raise InferletError(
                with_hint(
                    f"{fwd._label} puts {channel._label}, which will be full: its capacity is "
                    f"{channel._capacity}",
                    "take its cells, raise `.capacity(n)`, or `take` before `put` in the stage",
                )
            )
        self._counts[channel] = after
        self._popped[channel] = self._popped.get(channel, 0) + pops


def _check_memory(fwd: "ForwardPass", extent: int) -> None:
    engine = handles.current().engine
    needed = -(-extent // engine.page_size)
    if needed > engine.num_pages:
        raise OutOfMemory(
            with_hint(
                f"{fwd._label} needs {needed} pages for one sequence; the engine has "
                f"{engine.num_pages}",
                "use a shorter sequence, or start the engine with more memory",
            )
        )


def _num_popped(effect: ChannelEffect, count: int) -> int:
    return int(effect.pops or (effect.pops_if_present and count > 0))


def lane_counts(
    tokens: list[int] | Channel, indptr: tuple[int, ...], skipped: int = 0
) -> list[LaneCount]:
    """What a fire appends to each lane, from the token cell that is `skipped` cells ahead."""
    lanes = pairwise(indptr)
    if not isinstance(tokens, Channel):
        present = (sum(t >= 0 for t in tokens[start:end]) for start, end in lanes)
        return [LaneCount(n, n, n) for n in present]
    is_host_known = not tokens._stage_puts
    if len(tokens._staged) > skipped:
        cell = tokens._staged[skipped]
        present = (int(np.count_nonzero(cell[start:end] >= 0)) for start, end in lanes)
        return [LaneCount(n if is_host_known else None, n, n) for n in present]
    return [
        LaneCount(None, end - start, 0 if tokens._may_be_absent else end - start)
        for start, end in lanes
    ]


def accept_channels(bound: BoundPass) -> None:
    """The counts after one more fire of `bound`."""
    for channel, effect in bound.effects.items():
        pops = _num_popped(effect, channel._count)
        channel._count += effect.appends - pops
        if pops and channel._staged:
            channel._staged.popleft()


def num_possible(bound: BoundPass, working_sets: list[WorkingSet]) -> int:
    """How many more fires in a row the rings, the result queue and the context allow."""
    bounds = [_ring_allows(effect, c._count, c._capacity) for c, effect in bound.effects.items()]
    if bound.returns_value:
        bounds.append(handles.current().engine.channel_capacity - bound.results.num_pending)
    limit = handles.current().model.context_length
    counts = lane_counts(bound.tokens, bound.spec.indptr)
    for working_set, count in zip(working_sets, counts, strict=True):
        if count.least:
            bounds.append((limit - working_set._least_extent) // count.least)
    return min(bounds, default=FOREVER)


def _ring_allows(effect: ChannelEffect, count: int, capacity: int) -> int:
    if effect.needs_front and not count:
        return 0
    grows = effect.appends - _num_popped(effect, count)
    if grows > 0:
        return capacity - count
    return count if grows < 0 else FOREVER
