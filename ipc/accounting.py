"""What one fire does to each channel, from the pass alone: the SDK and the worker count with it.

Per channel and fire there is the front (oldest committed cell) and a new value, at first none.
Order: prologue, ports, epilogue, commit (contract, 10.2).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ipc.types import PassSpec

PEEK = "peek"
CONSUME = "consume"

SlotEvents = Callable[[bytes], Iterable[tuple[int, str]]]
Event = tuple[int, str, str]  # channel id, kind, where: "prologue" | "port" | "epilogue"


@dataclass(slots=True)
class ChannelEffect:
    """The static effect of one fire on one channel."""

    needs_front: bool = False  # something reads the front before any put
    pops: bool = False  # the front is dropped at commit
    pops_if_present: bool = False  # the same, when there is a front: a put on a peeked channel
    new_from: str = ""  # the stage whose put is appended at commit; "" = nothing is
    puts: bool = False  # some stage puts
    reads: bool = False  # some stage or port takes, reads, consumes or peeks
    is_spent: bool = False  # what was put last was taken: a take gives it again, and pops nothing

    @property
    def appends(self) -> bool:
        return bool(self.new_from)


def ports(spec: PassSpec) -> list[tuple[int, str]]:
    """(channel, CONSUME or PEEK) of every port that a channel feeds, in the contract's order."""
    place = spec.placement
    found = [(spec.tokens.channel, CONSUME), (spec.indptr_channel, PEEK)]
    if place is not None:
        found += [(place.positions.channel, CONSUME), (place.slots.channel, CONSUME)]
        found.append((place.kv_len.channel, PEEK))
        if place.fold is not None:
            found.append((place.fold.channel, CONSUME if place.consumes_fold else PEEK))
    found.append((spec.readout_channel, PEEK))
    if spec.mask is not None:
        found.append((spec.mask.channel, PEEK))
    if spec.checkpoints is not None:
        found.append((spec.checkpoints.channel, PEEK))
    return [(channel, kind) for channel, kind in found if channel >= 0]


def events(spec: PassSpec, slot_events: SlotEvents) -> Iterable[Event]:
    """Every channel event of one fire in phase order. `slot_events(program_id)`: (slot, kind)s."""
    for stage, program in (("prologue", spec.prologue), ("epilogue", spec.epilogue)):
        if program is not None:
            for slot, kind in slot_events(program.program_id):
                yield program.channels[slot], kind, stage
        if stage == "prologue":
            for channel, kind in ports(spec):
                yield channel, kind, "port"


def fire_effects(spec: PassSpec, slot_events: SlotEvents) -> dict[int, ChannelEffect]:
    """Channel id -> effect of one fire of the pass."""
    effects: dict[int, ChannelEffect] = {}
    for channel, kind, where in events(spec, slot_events):
        effect = effects.setdefault(channel, ChannelEffect())
        if kind == "put":
            effect.puts, effect.new_from, effect.is_spent = True, where, False
            continue
        effect.reads = True
        takes = kind in ("take", CONSUME)
        if effect.new_from:
            effect.new_from, effect.is_spent = ("", True) if takes else (effect.new_from, False)
        elif not (takes and effect.is_spent):
            effect.needs_front = True
            effect.pops = effect.pops or takes
    peeked = {channel for channel, kind in ports(spec) if kind == PEEK}
    for channel in peeked & effects.keys():
        effects[channel].pops_if_present = effects[channel].puts
    return effects
