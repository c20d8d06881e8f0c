"""Accounting of submits (contract, 10.3): what each ring, result queue and working set will hold.

A Ledger plays submits forward without changing anything, so that a refused frame leaves no trace;
`accept` then does the same to the real counts. Fires of a run are accepted as they are delivered.
"""

from typing import TYPE_CHECKING

from inferlet.channel import Channel
from inferlet.errors import InferletError, with_hint
from inferlet.runtime import handles
from inferlet.runtime.binding import BoundPass, Plan, Recorded
from inferlet.runtime.placing import Host, check_memory, steps
from inferlet.working_set import WorkingSet
from ipc.accounting import ChannelEffect
from ipc.types import MAX_RESULT_BYTES, MAX_RESULT_BYTES_OF_ALL

if TYPE_CHECKING:
    from inferlet.forward import ForwardPass

FOREVER = 1 << 62


class Ledger:
    """Submits of one call, one after the other."""

    def __init__(self, *, is_run: bool = False) -> None:
        """`is_run`: its results wait for room on their way, instead of being refused."""
        self._is_run = is_run
        self._counts: dict[Channel, int] = {}
        self._popped: dict[Channel, int] = {}
        self._hosts: dict[WorkingSet, Host] = {}
        self._results: dict[ForwardPass, int] = {}
        self._result_bytes = 0

    def admit(self, fwd: "ForwardPass", bound: BoundPass | Plan) -> None:
        """One more fire of `fwd`; InferletError when it is refused."""
        self._admit_rows(fwd, bound)
        self._admit_result(fwd, bound)
        for channel, effect in bound.effects.items():
            self._admit_channel(fwd, channel, effect)

    def _admit_rows(self, fwd: "ForwardPass", bound: BoundPass | Plan) -> None:
        sets = fwd._working_sets
        hosts = [self._hosts.get(ws) or Host.of(ws) for ws in sets]
        for ws, step in zip(sets, steps(bound.inputs, sets, hosts, self._popped), strict=True):
            check_memory(fwd._label, max(step.after.least_extent, step.after.reserved))
            self._hosts[ws] = step.after

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
        taken = fwd._results.num_pending - fwd._results.num_coming
        _check_results(fwd, bound.recorded, pending - taken)
        if not self._is_run:
            self._check_all_results(fwd, bound.recorded.result_bytes)
        self._results[fwd] = pending + 1

    def _check_all_results(self, fwd: "ForwardPass", nbytes: int) -> None:
        """Refuses results while too much of all passes is on its way."""
        self._result_bytes += nbytes
        coming = handles.current().result_bytes_coming
        if coming + self._result_bytes > MAX_RESULT_BYTES_OF_ALL:
            raise InferletError(
                with_hint(
                    f"results of other passes with {coming:,} bytes are on their way, and {fwd._label} "
                    f"returns {nbytes:,} more; at most {MAX_RESULT_BYTES_OF_ALL:,} bytes are at once",
                    "await some of them before the next submit",
                )
            )

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


def _check_results(fwd: "ForwardPass", recorded: Recorded, num_coming: int) -> None:
    """Refuses results that could not be delivered, with those that are on their way."""
    nbytes = recorded.result_bytes
    if nbytes > MAX_RESULT_BYTES:
        types = ", ".join(map(str, recorded.epilogue.result_types[:4]))
        raise InferletError(
            with_hint(
                f"the epilogue of {fwd._label} returns {nbytes:,} bytes ({types}); one fire "
                f"returns at most {MAX_RESULT_BYTES:,}",
                "reduce them in the stage, or read fewer rows out of each pass",
            )
        )
    if nbytes * (num_coming + 1) > MAX_RESULT_BYTES:
        raise InferletError(
            with_hint(
                f"{num_coming} results of {fwd._label} with {nbytes:,} bytes each are not awaited; "
                f"at most {MAX_RESULT_BYTES:,} bytes are on their way at once",
                "await the epilogue before the next submit",
            )
        )


def _num_popped(effect: ChannelEffect, count: int) -> int:
    return int(effect.pops or (effect.pops_if_present and count > 0))


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
        if nbytes := bound.recorded.result_bytes:
            bounds.append(MAX_RESULT_BYTES // nbytes)
            own = bound.pipeline.run.bytes_coming if bound.pipeline.run else 0
            left = MAX_RESULT_BYTES_OF_ALL - handles.current().result_bytes_coming + own
            bounds.append(max(1, left // nbytes))  # a run goes on, be it step by step
    if not bound.inputs.is_explicit:
        bounds += _context_allows(bound, working_sets)
    return min(bounds, default=FOREVER)


def _ring_allows(effect: ChannelEffect, count: int, capacity: int) -> int:
    if effect.needs_front and not count:
        return 0
    grows = effect.appends - _num_popped(effect, count)
    if grows > 0:
        return capacity - count
    return count if grows < 0 else FOREVER


def _context_allows(bound: BoundPass, working_sets: list[WorkingSet]) -> list[int]:
    """How many more fires fit the context of each set that grows for certain."""
    limit = handles.current().model.context_length
    hosts = [Host.of(ws) for ws in working_sets]
    try:
        found = steps(bound.inputs, working_sets, hosts, {})
    except InferletError:  # the next fire is refused
        return [0]
    bounds = []
    for host, step in zip(hosts, found, strict=True):
        if step.least > 0 and not (host.slots is None and host.may_have_tail):
            first = host.least_extent if host.slots is None else host.slots.next_position
            bounds.append((limit - first) // step.least)
    return bounds
