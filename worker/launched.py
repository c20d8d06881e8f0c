"""A wave on its way: its counts are committed, its values arrive, and become events."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipc.messages import Fired
from worker import prefix
from worker.packing import Packed, Place
from worker.singles import Column, Told, Unreads, events_of
from worker.state import Fire


@dataclass(slots=True)
class Delivery:
    fire: Fire
    results: list[Place]
    cells: list[tuple[int, Place]]
    appended: tuple[int, ...]
    frozen: tuple[int, ...]

    def told(self, packed: Packed) -> Told:
        get, fire = packed.get, self.fire
        event = Fired(
            fire.pipeline.number,
            fire.seq,
            tuple(get(place) for place in self.results),
            tuple((number, get(place)) for number, place in self.cells),
            self.appended,
            fire.cached,
            self.frozen,
        )
        return fire.process, event, fire.pipeline if fire.run is None else None


@dataclass(slots=True)
class Launched:
    """A wave whose counts are committed and whose values are on their way."""

    packed: Packed
    columns: list[Column] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    tokens: list[tuple[Fire, Place]] = field(default_factory=list)  # that stayed on the device
    unreads: Unreads | None = None  # likewise, of single fires

    def events(self) -> list[Told]:
        """What to tell, once the values are here."""
        packed = self.packed
        packed.wait()
        for fire, place in self.tokens:
            prefix.tokens_arrived(fire, memoryview(packed.get(place)).cast("i"))
        if self.unreads is not None:
            self.unreads.arrived(packed)
        told = events_of(self.columns, packed)
        told += [delivery.told(packed) for delivery in self.deliveries]
        return told
