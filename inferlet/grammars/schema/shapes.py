"""The normal form: a union of shapes, each of one JSON type.

Subschemas are not looked into here: a shape holds them as `Need`s, conjunctions of places of the
document, so that a recursive schema has a finite normal form.
"""

from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal

from inferlet.grammars.regex.tree import Node
from inferlet.grammars.schema.document import Place

# A place, and whether its schema must hold or must not.
Term = tuple[Place, bool]
Need = tuple[Term, ...]

ANYTHING: Need = ()


def both(one: Need, other: Need) -> Need:
    """Everything in either; a term counts once."""
    return tuple(dict.fromkeys((*one, *other)))


@dataclass(frozen=True, slots=True)
class Null:
    pass


@dataclass(frozen=True, slots=True)
class Boolean:
    values: frozenset[bool] = frozenset((True, False))


@dataclass(frozen=True, slots=True)
class Number:
    """Bounds are `(value, is_strict)`."""

    is_integer: bool = False
    is_fraction: bool = False
    low: tuple[Decimal, bool] | None = None
    high: tuple[Decimal, bool] | None = None
    multiples: tuple[Decimal, ...] = ()
    values: tuple[Decimal, ...] | None = None
    excluded: tuple[Decimal, ...] = ()
    indivisible: tuple[Decimal, ...] = ()  # a multiple of none of these


@dataclass(frozen=True, slots=True)
class String:
    """`patterns` are trees over the characters of the value."""

    patterns: tuple[Node, ...] = ()
    low: int = 0
    high: int | None = None
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Contains:
    """`low` to `high` items from `start` on satisfy the need."""

    need: Need
    low: int
    high: int | None
    unless: Need  # what the others satisfy, where that matters
    start: int = 0


@dataclass(frozen=True, slots=True)
class Array:
    prefix: tuple[Need, ...] = ()
    items: Need = ANYTHING
    low: int = 0
    high: int | None = None
    is_unique: bool = False
    contains: tuple[Contains, ...] = ()
    place: Place | None = None  # for messages


@dataclass(frozen=True, slots=True)
class Layer:
    """What one schema says of members: by name, by pattern of the name, and of all others."""

    properties: tuple[tuple[str, Need], ...] = ()
    patterns: tuple[tuple[str, Need], ...] = ()
    others: Need = ANYTHING
    is_listing: bool = False  # it has `properties`, so it closes the object …
    is_open: bool = False  # … unless it says what other members are

    def of_name(self, listed: Need | None, matches: dict[str, bool]) -> Need:
        """The need of a member: `listed` under its name, and of the patterns that its name has."""
        found = listed
        for pattern, need in self.patterns:
            if matches[pattern]:
                found = both(found or ANYTHING, need)
        return self.others if found is None else found


@dataclass(frozen=True, slots=True)
class Some:
    """There is a member with a name of these, whose value satisfies the need."""

    names: Node
    need: Need
    is_unlisted: bool = False  # its name is none that the object lists


@dataclass(frozen=True, slots=True)
class Object:
    layers: tuple[Layer, ...] = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    names: Need = ANYTHING  # what the names satisfy
    place: Place | None = None
    some: tuple[Some, ...] = ()


Shape = Null | Boolean | Number | String | Array | Object
Union = list[Shape]

EVERYTHING: dict[str, Shape] = {
    "null": Null(),
    "boolean": Boolean(),
    "number": Number(),
    "string": String(),
    "array": Array(),
    "object": Object(),
}
ALL_OF_TYPE = {**EVERYTHING, "integer": Number(is_integer=True)}


def intersect(one: Shape, other: Shape) -> Shape | None:
    """None when they cannot both hold; this looks at the shapes alone, not into subschemas."""
    if type(one) is not type(other):
        return None
    match one, other:
        case Null(), Null():
            return one
        case Boolean(values), Boolean(more):
            return Boolean(values & more) if values & more else None
        case Number(), Number():
            return _numbers(one, other)
        case String(), String():
            return _strings(one, other)
        case Array(), Array():
            return _arrays(one, other)
    return _objects(one, other)


def _larger(one: tuple | None, other: tuple | None) -> tuple | None:
    """The tighter of two lower bounds; a strict one is tighter than its equal."""
    return one if other is None else other if one is None else max(one, other)


def _smaller(one: tuple | None, other: tuple | None) -> tuple | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda bound: (bound[0], not bound[1]))


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _common(one: tuple | None, other: tuple | None) -> tuple | None:
    if one is None or other is None:
        return one if other is None else other
    return tuple(value for value in one if value in other)


def _numbers(one: Number, other: Number) -> Number | None:
    found = Number(
        one.is_integer or other.is_integer,
        one.is_fraction or other.is_fraction,
        _larger(one.low, other.low),
        _smaller(one.high, other.high),
        tuple(dict.fromkeys((*one.multiples, *other.multiples))),
        _common(one.values, other.values),
        tuple(dict.fromkeys((*one.excluded, *other.excluded))),
        tuple(dict.fromkeys((*one.indivisible, *other.indivisible))),
    )
    return None if found.is_integer and found.is_fraction else found


def _strings(one: String, other: String) -> String:
    return String(
        tuple(dict.fromkeys((*one.patterns, *other.patterns))),
        max(one.low, other.low),
        _least(one.high, other.high),
        _common(one.values, other.values),
    )


def _arrays(one: Array, other: Array) -> Array | None:
    length = max(len(one.prefix), len(other.prefix))
    prefix = tuple(both(item_need(one, i), item_need(other, i)) for i in range(length))
    high = _least(one.high, other.high)
    low = max(one.low, other.low)
    if high is not None and low > high:
        return None
    return Array(
        prefix, both(one.items, other.items), low, high, one.is_unique or other.is_unique,
        tuple(dict.fromkeys((*one.contains, *other.contains))), one.place or other.place,
    )  # fmt: skip


def item_need(array: Array, index: int) -> Need:
    return array.prefix[index] if index < len(array.prefix) else array.items


def _objects(one: Object, other: Object) -> Object | None:
    high = _least(one.high, other.high)
    low = max(one.low, other.low)
    required = tuple(dict.fromkeys((*one.required, *other.required)))
    if high is not None and max(low, len(required)) > high:
        return None
    return Object(
        tuple(dict.fromkeys((*one.layers, *other.layers))), required, low, high,
        both(one.names, other.names), one.place or other.place,
        tuple(dict.fromkeys((*one.some, *other.some))),
    )  # fmt: skip


def without_listing(shape: Shape) -> Shape:
    """For schemas that test and do not describe, such as that of `if`: they close nothing."""
    if not isinstance(shape, Object):
        return shape
    return replace(
        shape, layers=tuple(replace(layer, is_listing=False) for layer in shape.layers)
    )  # fmt: skip


def absorbed(union: Union) -> Union:
    """The union without objects of which another one allows all: what is left says the same."""
    objects = [shape for shape in union if isinstance(shape, Object)]
    parts = {shape: (*shape.layers, *shape.required, *shape.some) for shape in objects}
    uses = Counter(part for own in parts.values() for part in own)
    bits = {part: 1 << index for index, part in enumerate(uses)}
    # Each that is kept waits at its rarest part: who has not that part has a value that it has not.
    kept: dict[object, list[tuple[Object, int]]] = {}
    left = set()
    for shape, own in sorted(parts.items(), key=lambda pair: len(pair[1])):
        mask = sum(bits[part] for part in set(own))
        rivals = (pair for part in (None, *own) for pair in kept.get(part, ()))
        if not any(not m & ~mask and _allows_all(wide, shape) for wide, m in rivals):
            rarest = min(own, key=uses.__getitem__, default=None)
            kept.setdefault(rarest, []).append((shape, mask))
            left.add(shape)
    return [shape for shape in union if not isinstance(shape, Object) or shape in left]


def _allows_all(wide: Object, shape: Object) -> bool:
    """Whether an object allows all that one with all of its parts and more does."""
    # More layers may open what a list of properties closes, or list more.
    if len(shape.layers) > len(wide.layers) and any(layer.is_listing for layer in wide.layers):
        return False
    high = wide.high is None or (shape.high is not None and shape.high <= wide.high)
    return high and wide.low <= shape.low and wide.names in ((), shape.names)
