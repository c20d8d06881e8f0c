"""Facts of a submitted pass as `ipc.eta.identity` takes them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ipc.eta import identity
from ipc.eta.identity import ChannelFacts, PassFacts, Port, StageFacts
from ipc.types import Operand, PassSpec

if TYPE_CHECKING:
    from inferlet.channel import Channel
    from inferlet.eta.trace import Traced
    from inferlet.runtime.binding import BoundPass


def identity_of(bound: "BoundPass") -> bytes:
    """Equal for passes that are one program, whatever their channels, seeds and literals hold."""
    return identity.identity(facts_of(bound))


def facts_of(bound: "BoundPass") -> PassFacts:
    spec = bound.spec
    return PassFacts(
        rows=spec.num_rows,
        lanes=spec.num_lanes,
        geometry="explicit" if spec.placement else "folding",
        ports=list(_ports(spec)),
        readout_counts=spec.readout_counts,
        channels={channel._number: _channel_facts(channel) for channel in bound.effects},
        prologue=_stage_facts(bound.recorded.prologue),
        epilogue=_stage_facts(bound.recorded.epilogue),
        options=[("group", lane, str(group)) for lane, group in enumerate(spec.groups)],
    )


def _ports(spec: PassSpec) -> Iterator[Port]:
    """In the order of the contract's section 13. A list counts with its shape alone."""
    yield _port("tokens", spec.tokens)
    yield _channel_or_shape("indptr", spec.indptr_channel, (len(spec.indptr),))
    if place := spec.placement:
        yield _port("positions", place.positions)
        yield _port("slots", place.slots)
        yield _port("kv_len", place.kv_len)
        if place.fold is not None:
            yield _port("fold", place.fold)
    yield _channel_or_shape("readout", spec.readout_channel, (spec.num_readouts,))
    if spec.mask is not None:
        yield _channel_or_shape("mask", spec.mask.channel, (spec.num_rows, spec.mask.width))
    if spec.checkpoints is not None:
        yield _port("checkpoints", spec.checkpoints)


def _port(kind: str, operand: Operand) -> Port:
    return _channel_or_shape(kind, operand.channel, (len(operand.values),))


def _channel_or_shape(kind: str, channel: int, shape: tuple[int, ...]) -> Port:
    return Port(kind, channel) if channel >= 0 else Port(kind, shape=shape)


def _channel_facts(channel: "Channel") -> ChannelFacts:
    return ChannelFacts(channel._cell, channel._capacity, channel._is_seeded)


def _stage_facts(stage: "Traced | None") -> StageFacts | None:
    if stage is None:
        return None
    numbers = [channel._number for channel in stage.channels]
    return StageFacts(stage.code, numbers, stage.outputs, stage.structure)
