"""Programs: pure nodes plus an ordered list of channel effects. Owns hash-consing and the canonical
order; refuses types (`ipc.eta.check`) and bytes (`ipc.eta.encode`).

A program is closed: channels are *slots*, numbered by first use, and constants are numbered by
canonical order, so programs that differ in a channel or in a temperature are one program.

    nodes     values in canonical order: an operand always precedes its users
    effects   take, read, put in the order in which the stage did them
    results   what the stage returns

Channels have registers while a stage runs, and the Builder resolves them: a take after a put gives
the put value, so the only channel value that a program itself needs is the *front* of a slot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ipc.eta.ops import BY_NAME, CARRY, INDEX, Op
from ipc.types import DType, TensorType

_NONE = -1


class Node(NamedTuple):
    op: Op
    args: tuple[int, ...]
    attrs: tuple[Any, ...]

    @property
    def attr_map(self) -> dict[str, Any]:
        return dict(zip(self.op.attr_names, self.attrs, strict=True))


class Effect(NamedTuple):
    op: Op  # take, read, put
    slot: int
    node: int = _NONE  # what is put


@dataclass(frozen=True)
class Program:
    """One stage. Build with `Builder`, or decode; both give the canonical form."""

    nodes: tuple[Node, ...]
    effects: tuple[Effect, ...]
    results: tuple[int, ...]
    num_slots: int

    def slot_events(self) -> tuple[tuple[int, str], ...]:
        """(slot, "take" | "read" | "put") in the order of the stage, without repetitions that
        change nothing."""
        return tuple((effect.slot, effect.op.name) for effect in self.effects)

    def outputs(self) -> tuple[tuple[int, str], ...]:
        """The (lane, name) pairs of the model outputs that the program reads, sorted."""
        return tuple(sorted({node.attrs for node in self.nodes if node.op.name == "output"}))

    @cached_property
    def constant_types(self) -> tuple[TensorType, ...]:
        """Types of the constants in pool order."""
        return tuple(TensorType(*node.attrs) for node in self.nodes if node.op.name == "constant")

    @cached_property
    def fronts(self) -> tuple[int, ...]:
        """Slots whose front some node reads."""
        return tuple(sorted(node.attrs[0] for node in self.nodes if node.op.name == "front"))

    @cached_property
    def final_states(self) -> dict[int, int | None]:
        """slot -> the node that is its new value at the end, or None where a take cleared it.
        Slots that are only read are absent."""
        states: dict[int, int | None] = {}
        for effect in self.effects:
            if effect.op.name == "put":
                states[effect.slot] = effect.node
            elif effect.op.name == "take":
                states[effect.slot] = None
        return states

    def never_absent_puts(self) -> frozenset[int]:
        """Slots that are put, and every put value is an index by construction: never -1."""
        safe: list[bool] = []
        for node in self.nodes:
            values = node.args[1:] if node.op.name == "select" else node.args
            values = values[:1] if node.op.name in ("gather", "gather_row", "pick") else values
            carried = CARRY in node.op.traits or _is_integer_cast(node)
            safe.append(INDEX in node.op.traits or (carried and all(safe[i] for i in values)))
        puts: dict[int, bool] = {}
        for effect in self.effects:
            if effect.op.name == "put":
                puts[effect.slot] = puts.get(effect.slot, True) and safe[effect.node]
        return frozenset(slot for slot, never_absent in puts.items() if never_absent)


def _is_integer_cast(node: Node) -> bool:
    # An index is below 2^31, so neither direction of i32 <-> u32 makes it negative.
    return node.op.name == "cast" and node.attrs[0] in (DType.i32, DType.u32)


class _Register:
    """Registers of one channel slot while the stage runs."""

    __slots__ = ("front_seen", "last_take", "new")

    def __init__(self) -> None:
        self.new = _NONE
        self.last_take = _NONE  # what the last take gave, until the next put
        self.front_seen = False


class Finished(NamedTuple):
    program: Program
    positions: dict[int, int]  # builder node -> canonical node


class Builder:
    """Collects one stage. Equal nodes are one node, except constants: two literals stay two
    literals even when their values agree today."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.effects: list[Effect] = []
        self._interned: dict[Node, int] = {}
        self._registers: dict[int, _Register] = {}

    def add(
        self, name: str, args: Iterable[int] = (), attrs: Mapping[str, Any] | None = None
    ) -> int:
        op = BY_NAME[name]
        given = attrs or {}
        node = Node(op, tuple(args), tuple(given[key] for key in op.attr_names))
        if op.name == "constant":
            self.nodes.append(node)
            return len(self.nodes) - 1
        found = self._interned.setdefault(node, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(node)
        return found

    def take(self, slot: int) -> int:
        register = self._register(slot)
        if register.last_take != _NONE:
            return register.last_take
        value, register.new = register.new, _NONE
        if value == _NONE:
            value = self._front(slot)
            register.front_seen = True
        register.last_take = value
        self.effects.append(Effect(BY_NAME["take"], slot))
        return value

    def read(self, slot: int) -> int:
        register = self._register(slot)
        if register.new != _NONE:
            return register.new
        if not register.front_seen:
            register.front_seen = True
            self.effects.append(Effect(BY_NAME["read"], slot))
        return self._front(slot)

    def put(self, slot: int, node: int) -> None:
        register = self._register(slot)
        register.new, register.last_take = node, _NONE
        self.effects.append(Effect(BY_NAME["put"], slot, node))

    def _front(self, slot: int) -> int:
        return self.add("front", (), {"slot": slot})

    def _register(self, slot: int) -> _Register:
        return self._registers.setdefault(slot, _Register())

    def has_front(self, slot: int) -> bool:
        """Whether a recorded take or read gave the slot's front."""
        return slot in self._registers and self._registers[slot].front_seen

    def finish(self, results: Iterable[int] = ()) -> Finished:
        """The canonical program: dead nodes dropped, nodes in depth-first order of the puts and
        then the results, slots renumbered by first use."""
        results = tuple(results)
        roots = [effect.node for effect in self.effects if effect.op.name == "put"]
        order = self._depth_first([*roots, *results])
        positions = {node: position for position, node in enumerate(order)}
        slots: dict[int, int] = {}
        for effect in self.effects:
            slots.setdefault(effect.slot, len(slots))
        nodes = tuple(self._renumbered(self.nodes[node], positions, slots) for node in order)
        effects = tuple(
            Effect(op, slots[slot], positions[node] if node != _NONE else _NONE)
            for op, slot, node in self.effects
        )
        program = Program(nodes, effects, tuple(positions[node] for node in results), len(slots))
        return Finished(program, positions)

    @staticmethod
    def _renumbered(node: Node, positions: dict[int, int], slots: dict[int, int]) -> Node:
        args = tuple(positions[arg] for arg in node.args)
        return Node(
            node.op, args, (slots[node.attrs[0]],) if node.op.name == "front" else node.attrs
        )

    def _depth_first(self, roots: list[int]) -> list[int]:
        order: list[int] = []
        done = bytearray(len(self.nodes))
        # An explicit stack: a program may be deeper than Python's recursion limit.
        stack = list(reversed(roots))
        while stack:
            node = stack[-1]
            waiting = [] if done[node] else [a for a in self.nodes[node].args if not done[a]]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if not done[node]:
                done[node] = 1
                order.append(node)
        return order
