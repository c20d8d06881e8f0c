"""What a fire does to the working sets of its lanes, as far as the host knows before it settles.

The host plays every fire that it knows all about on the slots themselves (ipc.geometry): then what
breaks a rule is refused at submit. Where a device value decides, it waits for the engine's word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inferlet.channel import Channel
from inferlet.errors import InferletError, OutOfMemory, with_hint
from inferlet.runtime import handles, ports
from inferlet.runtime.ports import Shape
from inferlet.working_set import WorkingSet
from ipc import geometry
from ipc.geometry import Explicit, GeometryError, Placed, Slots

if TYPE_CHECKING:
    from inferlet.eta.trace import Traced
    from inferlet.forward import ForwardPass, Numbers

Skipped = Mapping[Channel, int]  # cells that fires before this one pop
FEW = 1 << 40  # beyond any slot


class Host(NamedTuple):
    """What the host knows of one working set after all accepted fires."""

    folded: int  # as `folded()` says
    least_extent: int
    slots: Slots | None  # all of it; None when a device value has decided
    may_have_tail: bool  # slots that are not frozen
    reserved: int  # that the engine was told

    @classmethod
    def of(cls, ws: WorkingSet) -> "Host":
        return cls(ws._folded, ws._least_extent, ws._slots, ws._may_have_tail, ws._reserved)


@dataclass(slots=True)
class LaneStep:
    """What one fire does to one lane's working set."""

    known: int | None  # growth of the frozen prefix that counts at once; None: when it has settled
    frozen: int  # that growth, unless the engine reports another
    default: int  # growth of the extent, unless the engine reports another
    least: int  # growth of the extent that counts at once
    after: Host


@dataclass(slots=True)
class Inputs:
    """What feeds the ports of a bound pass."""

    label: str
    num_rows: int
    nominal_indptr: tuple[int, ...]
    readout_counts: tuple[int, ...]
    tokens: "Numbers"
    indptr: "Numbers | None"
    readout: "Numbers | None"
    positions: "Numbers | None"
    slots: "Numbers | None"
    kv_len: "Numbers | None"
    fold: "Numbers | None"
    mask_width: int | None
    from_prologue: frozenset[Channel]  # what these hold, the prologue decides

    @classmethod
    def of(cls, fwd: "ForwardPass", shape: Shape, prologue: "Traced | None") -> "Inputs":
        puts = prologue.program.slot_events() if prologue else ()
        return cls(
            fwd._label, shape.num_rows, shape.indptr, shape.readout_counts, fwd._tokens, fwd._indptr,
            fwd._readout if fwd._epilogue is not None else None, *fwd._geometry._ports(),
            None if fwd._mask is None else fwd._mask.shape[1],
            frozenset(prologue.channels[slot] for slot, kind in puts if kind == "put"),
        )  # fmt: skip

    def value(self, port: Any, skipped: Skipped) -> list[int] | None:
        """What a port will hold; None when only the device knows."""
        if not isinstance(port, Channel):
            return port
        at = skipped.get(port, 0)
        if port in self.from_prologue or len(port._staged) <= at:
            return None
        return port._staged[at].tolist()

    def is_device_made(self, port: Any) -> bool:
        return isinstance(port, Channel) and (port._stage_puts or port in self.from_prologue)

    @property
    def is_explicit(self) -> bool:
        return self.slots is not None


def steps(inputs: Inputs, sets: Sequence[WorkingSet], hosts: Sequence[Host], skipped: Skipped) -> list[LaneStep]:  # fmt: skip
    """What the next fire does to each lane; InferletError when the host sees that it cannot."""
    try:
        return list(_steps(inputs, sets, hosts, skipped))
    except GeometryError as error:
        raise InferletError(with_hint(f"{inputs.label}: {error}", error.hint)) from None


def _steps(
    inputs: Inputs, sets: Sequence[WorkingSet], hosts: Sequence[Host], skipped: Skipped
) -> list[LaneStep]:
    tokens = inputs.value(inputs.tokens, skipped)
    if tokens is not None and isinstance(inputs.tokens, Channel):
        ports.check_tokens(tokens, inputs.label)
    if tokens is None and not inputs.tokens._may_be_absent:
        tokens = [0] * inputs.num_rows
    indptr: Sequence[int] | None = inputs.nominal_indptr
    if inputs.indptr is not None:
        indptr = inputs.value(inputs.indptr, skipped)
    if indptr is None:
        return [_unknown(inputs, host, 0) for host in hosts]
    geometry.check_indptr(indptr, inputs.num_rows)
    _check_readout(inputs, indptr, skipped)
    if inputs.is_explicit:
        place = _Explicit(inputs, skipped)
        return [place.step(lane, tokens, indptr, host) for lane, host in enumerate(hosts)]
    return [
        _folding_step(inputs, ws, lane, tokens, span, host)
        for lane, (ws, span, host) in enumerate(zip(sets, pairwise(indptr), hosts, strict=True))
    ]


def _check_readout(inputs: Inputs, indptr: Sequence[int], skipped: Skipped) -> None:
    if isinstance(inputs.readout, Channel) or inputs.indptr is not None:
        rows = inputs.value(inputs.readout, skipped)
        if rows is not None or inputs.readout is None:
            geometry.readout_by_lane(rows, indptr, inputs.readout_counts)


def _present(tokens: list[int], start: int, end: int) -> Sequence[int]:
    if end > start and min(tokens[start:end]) < 0:
        return [row for row in range(start, end) if tokens[row] >= 0]
    return range(start, end)


# ---- folding


def _folding_step(
    inputs: Inputs,
    ws: WorkingSet,
    lane: int,
    tokens: list[int] | None,
    span: tuple[int, int],
    host: Host,
) -> LaneStep:
    if tokens is None:  # they may be absent
        return _unknown(inputs, host, span[1] - span[0])
    rows = _present(tokens, *span)
    _check_context(inputs, ws, host, len(rows))
    slots = None
    if host.slots is not None:
        placed = geometry.fold_rows(host.slots, rows, FEW)
        slots = placed.after
        grown: int | None = slots.folded - host.slots.folded
        _check_mask(inputs, placed, lane)
    else:
        grown = None if host.may_have_tail else len(rows)
    decides = inputs.is_device_made(inputs.tokens) or inputs.is_device_made(inputs.indptr)
    known = None if decides else grown
    after = Host(
        host.folded + (known or 0), host.least_extent + len(rows), slots, False, host.reserved
    )
    return LaneStep(known, len(rows) if grown is None else grown, len(rows), len(rows), after)


def _check_context(inputs: Inputs, ws: WorkingSet, host: Host, rows: int) -> None:
    limit = handles.current().model.context_length
    if host.slots is None and host.may_have_tail:
        return  # its positions are not known
    first = host.least_extent if host.slots is None else host.slots.next_position
    if rows and first + rows > limit:
        raise InferletError(
            with_hint(
                f"{inputs.label} reaches position {first + rows - 1} in the {ws._label}; the "
                f"model's context ends at {limit - 1}",
                "stop before `model.context_length()`",
            )
        )


def _check_mask(inputs: Inputs, placed: Placed, lane: int) -> None:
    if inputs.mask_width is not None and placed.rows and len(placed.stored) > inputs.mask_width:
        raise GeometryError(
            f"the mask has {inputs.mask_width} columns; lane {lane} has {len(placed.stored)} slots",
            "mask",
        )


def _unknown(inputs: Inputs, host: Host, most: int) -> LaneStep:
    """The device decides how many rows there are."""
    if not inputs.is_explicit:
        after = host._replace(slots=None, may_have_tail=False)
        return LaneStep(None, most, most, 0, after)
    least = host.folded - host.least_extent
    after = host._replace(slots=None, may_have_tail=True, least_extent=host.folded)
    return LaneStep(0 if inputs.fold is None else None, 0, 0, least, after)


def check_memory(label: str, extent: int) -> None:
    """OutOfMemory when no sequence can have so many slots."""
    engine = handles.current().engine
    needed = -(-extent // engine.page_size)
    if needed > engine.num_pages:
        raise OutOfMemory(
            with_hint(
                f"{label} needs {needed} pages for one sequence; the engine has "
                f"{engine.num_pages}",
                "use a shorter sequence, or start the engine with more memory",
            )
        )


# ---- explicit placement


class _Explicit:
    """The ports of an explicit placement, as far as they are known."""

    def __init__(self, inputs: Inputs, skipped: Skipped) -> None:
        self.inputs = inputs
        self.positions = inputs.value(inputs.positions, skipped)
        self.slots = inputs.value(inputs.slots, skipped)
        self.kv_len = inputs.value(inputs.kv_len, skipped)
        self.fold = inputs.value(inputs.fold, skipped)
        self.fold_is_known = inputs.fold is None or self.fold is not None

    def step(
        self, lane: int, tokens: list[int] | None, indptr: Sequence[int], host: Host
    ) -> LaneStep:
        start, end = indptr[lane], indptr[lane + 1]
        rows = range(start, end) if tokens is None else _present(tokens, start, end)
        host = self._reserved(lane, rows, host)
        if tokens is None:
            return _unknown(self.inputs, host, 0)
        self._check_known(lane, rows, host)
        all_known = None not in (self.positions, self.slots, self.kv_len) and self.fold_is_known
        if host.slots is None or not all_known:
            return _unknown(self.inputs, host, 0)
        context = handles.current().model.context_length
        explicit = Explicit(self.positions, self.slots, self.kv_len, self.fold)
        placed = geometry.place_rows(host.slots, rows, explicit, lane, context)
        _check_mask(self.inputs, placed, lane)
        return self._known(placed.after, host)

    def _known(self, after: Slots, host: Host) -> LaneStep:
        frozen = after.folded - host.slots.folded
        grown = after.extent - host.slots.extent
        known = None if self.inputs.is_device_made(self.inputs.fold) else frozen
        state = Host(
            host.folded + (known or 0), host.least_extent + grown, after,
            after.folded < after.extent, host.reserved,
        )  # fmt: skip
        return LaneStep(known, frozen, grown, grown, state)

    def _reserved(self, lane: int, rows: Sequence[int], host: Host) -> Host:
        """Slots that the host knows reserve by themselves."""
        if self.slots is None or not rows:
            return host
        end = max(self.slots[row] for row in rows) + 1
        if self.kv_len is not None:
            end = max(end, self.kv_len[lane])
        check_memory(self.inputs.label, end)  # before anything has that size
        slots = host.slots and host.slots.reserve(end)
        return host._replace(slots=slots, reserved=max(host.reserved, end))

    def _check_known(self, lane: int, rows: Sequence[int], host: Host) -> None:
        """The rules that what is known breaks, whatever the rest will be."""
        slots = [self.slots[row] for row in rows] if self.slots is not None else []
        positions = [self.positions[row] for row in rows] if self.positions is not None else []
        kv_len = self.kv_len[lane] if self.kv_len is not None else FEW
        geometry.check_rows(slots, positions, kv_len, handles.current().model.context_length)
        if slots and min(slots) < host.folded:
            raise GeometryError(
                f"slot {min(slots)} is frozen: the first {host.folded} slots of lane {lane} are",
                "slots",
            )
        if rows and host.slots is not None and self.kv_len is not None:
            if kv_len > host.slots.reserved:
                raise GeometryError(
                    f"lane {lane} reads {kv_len} slots, but has reserved {host.slots.reserved}",
                    "kv_len",
                )


def staged_end(inputs: Inputs) -> int:
    """Slots that the host-known cells of a run's ports name: they reserve by themselves."""
    ends = [0]
    if inputs.is_explicit and not inputs.is_device_made(inputs.slots):
        ends += [value + 1 for value in _all_values(inputs.slots)]
        if not inputs.is_device_made(inputs.kv_len):
            ends += _all_values(inputs.kv_len)
    return max(ends)


def _all_values(port: "Numbers") -> list[int]:
    if not isinstance(port, Channel):
        return port
    return np.concatenate(port._staged).tolist() if port._staged else []
