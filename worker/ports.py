"""Ports that decide where the rows of a pass go and what they attend. Counts: no tensors.

A pass that appends plainly, with lanes and readouts known in advance, has none of them. For the
others a fire's ports are read after its prologue; then `resolve` places its rows, or says why not.
Pages are taken before that, when the wave is formed: as many as the rows could need at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ipc import accounting, geometry
from ipc.errors import ErrorCode, Failure
from ipc.eta.graph import HELD, Program
from ipc.geometry import Explicit, GeometryError, Placed
from ipc.types import DType, Operand, PassSpec, TensorType
from worker.definitions import Channel
from worker.state import Fire, Process, State
from worker.violation import Violation

LIMIT = 1 << 32


@dataclass(slots=True, eq=False)
class Port:
    """What feeds one port: a constant, or a channel, whose value the prologue may have put."""

    values: Sequence[int]
    channel: Channel | None = None
    from_prologue: bool = False


@dataclass(slots=True, eq=False)
class Ports:
    """The ports of one pass."""

    numbers: dict[str, Port]  # indptr, positions, slots, kv_len, fold, readout: those that it has
    mask: Port | None  # a constant has one byte an entry
    mask_width: int
    groups: tuple[int, ...]

    @property
    def is_explicit(self) -> bool:
        return "slots" in self.numbers


@dataclass(slots=True, eq=False)
class View:
    """The ports of one fire, resolved."""

    placed: list[Placed]  # a lane each
    readout: Sequence[int]  # in lane order
    mask: Any = None  # `[rows, width]` of all rows, absent ones included

    @property
    def is_causal(self) -> bool:
        """Whether the rows attend as appended ones do, as far as their own lane goes."""
        return self.mask is None and all(placed.is_causal for placed in self.placed)


def may_be_cut(fire: Fire) -> bool:
    """Whether its rows may be computed in several waves: none attends a later one."""
    bound = fire.pass_.ports
    if bound is None:
        return True
    in_groups = any(group >= 0 for group in bound.groups)
    return fire.view is not None and fire.view.is_causal and not in_groups


# ---- binding


def bind(process: Process, spec: PassSpec, prologue: Program | None) -> Ports | None:
    """The ports of a pass; None when it appends plainly. Violation when they make no sense."""
    _check_groups(spec)
    operands = list(_operands(spec))
    sources = _sources(spec, prologue)
    numbers = {}
    for name, operand, count in operands:
        port = _bind_number(process, name, operand, count)
        port.from_prologue = sources.get(name, False)
        if name != "checkpoints":  # an attention-only model keeps no copies
            numbers[name] = port
    mask = _bind_mask(process, spec)
    if mask is not None:
        mask.from_prologue = sources.get("mask", False)
    width = spec.mask.width if spec.mask is not None else 0
    is_plain = not numbers and mask is None and not spec.groups
    return None if is_plain else Ports(numbers, mask, width, spec.groups)


def _operands(spec: PassSpec) -> Iterator[tuple[str, Operand, int]]:
    """(name, what feeds it, how many entries) of the u32 ports that the pass has, in order."""
    rows, lanes, place = spec.num_rows, spec.num_lanes, spec.placement
    if spec.indptr_channel >= 0:
        yield "indptr", Operand(channel=spec.indptr_channel), lanes + 1
    if place is not None:
        yield "positions", place.positions, rows
        yield "slots", place.slots, rows
        yield "kv_len", place.kv_len, lanes
        if place.fold is not None:
            yield "fold", place.fold, lanes
    if spec.readout_channel >= 0:
        yield "readout", Operand(channel=spec.readout_channel), spec.num_readouts
    if spec.checkpoints is not None:
        yield "checkpoints", spec.checkpoints, -1


def _bind_number(process: Process, name: str, operand: Operand, count: int) -> Port:
    if not operand.is_channel:
        if count not in (-1, len(operand.values)):
            raise Violation(f"{len(operand.values)} entries of `{name}`; {count} are needed")
        if any(not 0 <= value < LIMIT for value in operand.values):
            raise Violation(f"an entry of `{name}` is no u32")
        return Port(operand.values)
    channel = _channel(process, operand.channel)
    cell = channel.cell
    if cell.dtype != DType.u32 or len(cell.shape) != 1 or count not in (-1, cell.size):
        raise Violation(f"`{name}` from a channel of {cell}")
    return Port((), channel)


def _bind_mask(process: Process, spec: PassSpec) -> Port | None:
    mask = spec.mask
    if mask is None:
        return None
    if not 1 <= mask.width < LIMIT // 2:
        raise Violation(f"a mask of width {mask.width}")
    if mask.is_channel:
        channel = _channel(process, mask.channel)
        if channel.cell != TensorType(DType.bool_, (spec.num_rows, mask.width)):
            raise Violation(f"a mask from a channel of {channel.cell}")
        return Port((), channel)
    if len(mask.values) != spec.num_rows * mask.width or mask.values.translate(None, b"\0\1"):
        raise Violation("a mask of other values than one bool for each row and slot")
    return Port(mask.values)


def _channel(process: Process, number: int) -> Channel:
    channel = process.channels.get(number)
    if channel is None:
        raise Violation(f"channel {number} does not exist")
    return channel


def _check_groups(spec: PassSpec) -> None:
    groups = spec.groups
    if groups and len(groups) != spec.num_lanes:
        raise Violation(f"{len(groups)} groups for {spec.num_lanes} lanes")
    if any(not -1 <= group < LIMIT for group in groups):
        raise Violation(f"groups {list(groups)[:16]}")


def _sources(spec: PassSpec, prologue: Program | None) -> dict[str, bool]:
    """name of a port -> whether it sees what the prologue has put, and not the front."""
    if prologue is None:
        return {}
    channels = spec.prologue.channels
    left = {channels[slot]: state for slot, state in prologue.leaves().items()}
    fed = [("tokens", spec.tokens.channel)]
    fed += [(name, operand.channel) for name, operand, _ in _operands(spec)]
    if spec.mask is not None:
        at = next((i for i, (name, _) in enumerate(fed) if name == "checkpoints"), len(fed))
        fed.insert(at, ("mask", spec.mask.channel))
    found = {}
    kinds = accounting.ports(spec)
    for (name, channel), (_, kind) in zip((f for f in fed if f[1] >= 0), kinds, strict=True):
        consumes = kind == accounting.CONSUME
        found[name] = channel in left and (consumes or left[channel] == HELD)
        if consumes and channel in left:
            left[channel] = ""  # spent: a peek sees the front again
    return found


# ---- pages


def most_pages(fire: Fire) -> int:
    """Pages that a fire with ports takes at most, whatever its channels hold."""
    ports, spec = fire.pass_.ports, fire.pass_.spec
    if "indptr" in ports.numbers:
        rows = [fire.num_rows] * spec.num_lanes
    else:
        rows = fire.lane_rows
    if not ports.is_explicit:
        return sum(held.pages_needed(count) for held, count in zip(fire.sets, rows))
    slots = ports.numbers["slots"]
    if slots.channel is None and "indptr" not in ports.numbers:
        size = fire.sets[0].pool.page_size
        return sum(
            len({slot // size for slot in slots.values[start:end]})
            for start, end in pairwise(spec.indptr)
        )
    return sum(min(n, held.writable_pages) for held, n in zip(fire.sets, rows))


# ---- one fire


def resolve(
    state: State, fire: Fire, values: Mapping[str, Sequence[int]], mask: Any = None
) -> Failure | None:
    """Places the rows of a fire whose tokens and ports are known; or says what is wrong."""
    spec = fire.pass_.spec
    indptr = values.get("indptr", spec.indptr)
    explicit = None
    if "slots" in values:
        given = (values[name] for name in ("positions", "slots", "kv_len"))
        explicit = Explicit(*given, values.get("fold"))
    try:
        geometry.check_indptr(indptr, spec.num_rows)
        if "indptr" in values:
            fire.lanes = fire.lanes.regrouped(indptr)
        present = fire.lanes.row_of or [0] * spec.num_rows
        sets = [held.slots for held in fire.sets]
        placed = geometry.place(sets, indptr, present, explicit, state.model.context_length)
        readout = _readout(spec, indptr, values)
        if spec.mask is not None:
            geometry.check_mask(placed, spec.mask.width)
    except GeometryError as error:
        return error.as_failure()
    fire.view = View(placed, readout, mask)
    return None


def _readout(
    spec: PassSpec, indptr: Sequence[int], values: Mapping[str, Sequence[int]]
) -> Sequence[int]:
    """The rows read out, in lane order. GeometryError unless each lane reads its fixed number."""
    if "indptr" not in values and "readout" not in values:
        return spec.readout
    if "readout" in values:
        return geometry.readout_by_lane(values["readout"], indptr, spec.readout_counts)
    return geometry.readout_by_lane(spec.readout or None, indptr, spec.readout_counts)


def neighbours(groups: Sequence[int], lane: int) -> list[int]:
    """The other lanes of the lane's group."""
    if not groups or groups[lane] < 0:
        return []
    return [other for other, group in enumerate(groups) if other != lane and group == groups[lane]]
