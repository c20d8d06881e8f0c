"""Programs: pure nodes plus an ordered list of channel effects. Owns hash-consing and the canonical
order; refuses types (`ipc.eta.check`) and bytes (`ipc.eta.encode`).

A program is closed: channels are *slots*, numbered by first use, and constants are numbered by
canonical order, so programs that differ in a channel or in a temperature are one program.

    nodes     values in canonical order: an operand always precedes its users
    effects   take, read, put in the order in which the stage did them
    results   what the stage returns

Channels have registers while a stage runs, and the Builder resolves them: a take after a put gives
the put value, so the only channel values that a program itself needs are the *front* of a slot, and
what an *earlier* phase of the same fire has put on it: the prologue, for an epilogue.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ipc.eta.ops import BY_NAME, CARRY, INDEX, Op
from ipc.types import DType, TensorType

_NONE = -1
_AS_CHANNEL_OPS = {"held": "read", "spent": "take"}

# What a stage may find on a channel besides its front: a new value of an earlier phase, or one that
# was taken since.
HELD, SPENT = "held", "spent"


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
        names = ((effect.slot, effect.op.name) for effect in self.effects)
        return tuple((slot, _AS_CHANNEL_OPS.get(name, name)) for slot, name in names)

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
    def earlier(self) -> tuple[int, ...]:
        """Slots of which some node reads what an earlier phase put."""
        return tuple(sorted(node.attrs[0] for node in self.nodes if node.op.name == "earlier"))

    @cached_property
    def last_puts(self) -> dict[int, int]:
        """slot -> the node that was put last, also when it was taken again."""
        return {effect.slot: effect.node for effect in self.effects if effect.op.name == "put"}

    @cached_property
    def cleared(self) -> frozenset[int]:
        """Slots that end without a new value, because a take came last."""
        last = {e.slot: e.op.name for e in self.effects if e.op.name in ("put", "take")}
        return frozenset(slot for slot, name in last.items() if name == "take")

    def leaves(self) -> dict[int, str]:
        """slot -> HELD or SPENT: what later phases of the fire find there."""
        return {slot: SPENT if slot in self.cleared else HELD for slot in self.last_puts}

    def expects(self) -> dict[int, str]:
        """slot -> HELD or SPENT: what the program was recorded for. A slot whose first take or put
        finds neither is absent."""
        return self._expected

    @cached_property
    def _expected(self) -> dict[int, str]:
        return {e.slot: e.op.name for e in self.effects if e.op.name in (HELD, SPENT)}

    @cached_property
    def _names_of_slots(self) -> dict[int, list[str]]:
        """Its effects in order, slot by slot."""
        names: dict[int, list[str]] = {}
        for effect in self.effects:
            names.setdefault(effect.slot, []).append(effect.op.name)
        return names

    def is_recorded_for(self, slot: int, found: str) -> bool:
        """Whether the program's takes and reads are right when an earlier phase has left `found` on
        `slot`: HELD, SPENT, or nothing."""
        expected = self.expects().get(slot, "")
        if expected or not found:
            return expected == found
        own = self._names_of_slots.get(slot, ())
        before_put = list(itertools.takewhile(lambda name: name != "put", own))
        return "take" not in before_put and not (found == HELD and "read" in before_put)

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

    __slots__ = ("earlier_seen", "expected", "front_seen", "last_take", "new")

    def __init__(self) -> None:
        self.new = _NONE
        self.last_take = _NONE  # what the last take gave, until the next put
        self.front_seen = self.earlier_seen = False
        self.expected = ""  # HELD or SPENT, until the stage has met it or put another value


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

    def expect(self, slot: int, state: str) -> None:
        """The stage will find on `slot` what an earlier phase of the fire left: HELD or SPENT."""
        self._register(slot).expected = state

    def meet(self, slot: int, state: str) -> None:
        """Records that the stage has met what it found on `slot`."""
        register = self._register(slot)
        register.expected, register.earlier_seen = "", True
        value = self.add("earlier", (), {"slot": slot})
        if state == HELD:
            register.new = value
        else:
            register.last_take = value
        self.effects.append(Effect(BY_NAME[state], slot))

    def take(self, slot: int) -> int:
        register = self._register(slot)
        if register.expected:
            self.meet(slot, register.expected)
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
        if register.expected == HELD:
            self.meet(slot, HELD)
        if register.new != _NONE:
            return register.new
        if not register.front_seen:
            register.front_seen = True
            self.effects.append(Effect(BY_NAME["read"], slot))
        return self._front(slot)

    def put(self, slot: int, node: int) -> None:
        register = self._register(slot)
        register.new, register.last_take, register.expected = node, _NONE, ""
        self.effects.append(Effect(BY_NAME["put"], slot, node))

    def _front(self, slot: int) -> int:
        return self.add("front", (), {"slot": slot})

    def _register(self, slot: int) -> _Register:
        return self._registers.setdefault(slot, _Register())

    def has_source(self, node: Node) -> bool:
        """Whether a recorded take or read gave this `front` or `earlier`."""
        register = self._registers.get(node.attrs[0])
        is_front = node.op.name == "front"
        return register is not None and (register.front_seen if is_front else register.earlier_seen)

    def is_late(self, slot: int, state: str) -> bool:
        """Whether the stage has done what would have met `state` on `slot` before."""
        register = self._register(slot)
        has_value = register.new != _NONE or register.last_take != _NONE
        return register.earlier_seen or has_value or (state == HELD and register.front_seen)

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
        is_cell = node.op.name in ("front", "earlier")
        return Node(node.op, args, (slots[node.attrs[0]],) if is_cell else node.attrs)

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
