"""The identity of a pass: SHA-256 of a canonical encoding of all that makes it the program it is
(contract, section 18). Owns that encoding; knows neither values nor names, and no engine.

    "PASS" version
    rows, lanes, geometry form
    channels   in order of first use (prologue, ports, epilogue): dtype, shape, capacity, seeded
    ports      kind, lane, name; channel number, or shape of the constant list
    readouts   rows read out of each lane
    options    (kind, lane, text): switches, groups
    adapters   site, code, channel numbers
    prologue   code, channel number of each slot
    epilogue   the same, the types of the outputs that it reads, structure of its result

Counts stand before lists, integers are LEB128, texts and codes have their length before them.
"""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipc.types import TensorType

MAGIC = b"PASS\x01"


@dataclass(frozen=True)
class ChannelFacts:
    cell: TensorType
    capacity: int
    is_seeded: bool


@dataclass(frozen=True)
class Port:
    """What feeds one input of a pass: a channel, or a list of this shape."""

    kind: str
    channel: Hashable | None = None
    shape: tuple[int, ...] = ()
    lane: int | None = None
    name: str = ""


@dataclass(frozen=True)
class StageFacts:
    """Canonical bytes (`ipc.eta.encode`) and the channel of each slot. `site`: of an adapter."""

    code: bytes
    channels: Sequence[Hashable]
    outputs: Mapping[tuple[int, str], TensorType] = field(default_factory=dict)
    structure: Any = None
    site: str = ""


@dataclass(frozen=True)
class PassFacts:
    rows: int
    lanes: int
    geometry: str
    ports: Sequence[Port]
    readout_counts: Sequence[int]
    channels: Mapping[Hashable, ChannelFacts]
    prologue: StageFacts | None = None
    epilogue: StageFacts | None = None
    adapters: Sequence[StageFacts] = ()
    options: Sequence[tuple[str, int, str]] = ()


def identity(facts: PassFacts) -> bytes:
    """32 bytes that are equal for equal passes, in every process and language."""
    return hashlib.sha256(encode(facts)).digest()


def encode(facts: PassFacts) -> bytes:
    """The canonical encoding that `identity` hashes."""
    numbers = _channel_numbers(facts)
    out = _Writer()
    out.raw(MAGIC)
    out.uint(facts.rows)
    out.uint(facts.lanes)
    out.text(facts.geometry)
    out.uint(len(numbers))
    for key in numbers:
        channel = facts.channels[key]
        out.tensor_type(channel.cell)
        out.uint(channel.capacity)
        out.uint(channel.is_seeded)
    out.uint(len(facts.ports))
    for port in facts.ports:
        _write_port(out, port, numbers)
    out.uints(facts.readout_counts)
    out.uint(len(facts.options))
    for kind, lane, text in sorted(facts.options):
        out.text(kind)
        out.uint(lane)
        out.text(text)
    out.uint(len(facts.adapters))
    for adapter in facts.adapters:
        out.text(adapter.site)
        _write_stage(out, adapter, numbers)
    for stage in (facts.prologue, facts.epilogue):
        out.uint(stage is not None)
        if stage is not None:
            _write_stage(out, stage, numbers)
    return bytes(out.data)


def _channel_numbers(facts: PassFacts) -> dict[Hashable, int]:
    """Numbers by first use in the order of a fire."""
    used = list(facts.prologue.channels) if facts.prologue else []
    used += [port.channel for port in facts.ports if port.channel is not None]
    for stage in (*facts.adapters, facts.epilogue):
        used += stage.channels if stage else []
    return {key: number for number, key in enumerate(dict.fromkeys(used))}


def _write_port(out: "_Writer", port: Port, numbers: Mapping[Hashable, int]) -> None:
    out.text(port.kind)
    out.uint(0 if port.lane is None else port.lane + 1)
    out.text(port.name)
    if port.channel is None:
        out.uint(0)
        out.uints(port.shape)
    else:
        out.uint(1 + numbers[port.channel])


def _write_stage(out: "_Writer", stage: StageFacts, numbers: Mapping[Hashable, int]) -> None:
    out.blob(stage.code)
    out.uints([numbers[key] for key in stage.channels])
    out.uint(len(stage.outputs))
    for (lane, name), made in sorted(stage.outputs.items()):
        out.uint(lane)
        out.text(name)
        out.tensor_type(made)
    _write_structure(out, stage.structure)


def _write_structure(out: "_Writer", node: Any) -> None:
    """A node is None, "literal", the number of a tensor, or (kind, children), kind being "list",
    "tuple" or "dict", whose children are (key, node)."""
    if node is None or isinstance(node, str):
        out.text("none" if node is None else node)
    elif isinstance(node, int):
        out.text("tensor")
        out.uint(node)
    else:
        kind, children = node
        out.text(kind)
        out.uint(len(children))
        for child in children:
            if kind == "dict":
                key, child = child
                out.text(f"{type(key).__name__} {key}")
            _write_structure(out, child)


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def raw(self, data: bytes) -> None:
        self.data += data

    def uint(self, value: int) -> None:
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def uints(self, values: Sequence[int]) -> None:
        self.uint(len(values))
        for value in values:
            self.uint(value)

    def blob(self, data: bytes) -> None:
        self.uint(len(data))
        self.data += data

    def text(self, text: str) -> None:
        self.blob(text.encode())

    def tensor_type(self, made: TensorType) -> None:
        self.uint(int(made.dtype))
        self.uints(made.shape)
