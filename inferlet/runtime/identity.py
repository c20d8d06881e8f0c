"""Facts of a submitted pass as `ipc.eta.identity` takes them."""

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
        geometry="folding",
        ports=_ports(spec),
        readout_counts=spec.readout_counts,
        channels={channel._number: _channel_facts(channel) for channel in bound.effects},
        prologue=_stage_facts(bound.recorded.prologue),
        epilogue=_stage_facts(bound.recorded.epilogue),
    )


def _ports(spec: PassSpec) -> list[Port]:
    """In the order of the contract's section 13."""
    return [
        _port("tokens", spec.tokens),
        Port("indptr", shape=(len(spec.indptr),)),
        Port("readout", shape=(len(spec.readout),)),
    ]


def _port(kind: str, operand: Operand) -> Port:
    if operand.is_channel:
        return Port(kind, operand.channel)
    return Port(kind, shape=(len(operand.values),))


def _channel_facts(channel: "Channel") -> ChannelFacts:
    return ChannelFacts(channel._cell, channel._capacity, channel._is_seeded)


def _stage_facts(stage: "Traced | None") -> StageFacts | None:
    if stage is None:
        return None
    numbers = [channel._number for channel in stage.channels]
    return StageFacts(stage.code, numbers, stage.outputs, stage.structure)
