"""`unevaluatedProperties` and `unevaluatedItems` beside schemas that evaluate members or items.

Which ones they evaluate depends on which of them hold. One way of holding is a conjunction of
schemas with what these evaluate together. A value satisfies the keyword when some way holds and the
rest satisfies the keyword's schema: if more schemas hold than the way says, another way says so.
An item that satisfies `contains` is evaluated, too: the rest satisfies one of both schemas.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferlet.grammars.schema.document import Place, refuse
from inferlet.grammars.schema.shapes import (
    ANYTHING,
    EVERYTHING,
    Array,
    Layer,
    Need,
    Object,
    Shape,
    Union,
    both,
)

if TYPE_CHECKING:
    from inferlet.grammars.schema.expand import Expander

MAX_WAYS = 64
KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class Seen:
    """What is evaluated: members by name and by pattern of the name, and the first items."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    has_all_members: bool = False
    items: int = 0
    has_all_items: bool = False
    contained: tuple[Place, ...] = ()  # items that satisfy one of these

    def __or__(self, other: "Seen") -> "Seen":
        return Seen(
            tuple(dict.fromkeys((*self.names, *other.names))),
            tuple(dict.fromkeys((*self.patterns, *other.patterns))),
            self.has_all_members or other.has_all_members,
            max(self.items, other.items),
            self.has_all_items or other.has_all_items,
            tuple(dict.fromkeys((*self.contained, *other.contained))),
        )


Way = tuple[Need, Seen]


def union_of(expander: "Expander", place: Place, keyword: str) -> Union:
    """Shapes of the values that satisfy the keyword, as far as it goes by itself."""
    found: dict[Shape, None] = {}
    walk = _Walk(expander, place, keyword)
    rest = expander.inner(place, keyword)
    need: Need = ANYTHING if rest.value is True else ((rest, True),)
    for held, seen in walk.ways(place, ()):
        union = expander.all_of(held) if held else list(EVERYTHING.values())
        own = need
        if seen.contained and need:
            either = {"anyOf": [rest.value, *(one.value for one in seen.contained)]}
            own = ((expander.document.make(either, rest.path, place), True),)
        found.update(dict.fromkeys(expander.meet(union, _limited(keyword, seen, own), place)))
    return list(found)


def _limited(keyword: str, seen: Seen, need: Need) -> Union:
    if keyword == "unevaluatedItems":
        limit: Shape = Array((ANYTHING,) * seen.items, ANYTHING if seen.has_all_items else need)
    else:
        names = tuple((name, ANYTHING) for name in seen.names)
        patterns = tuple((pattern, ANYTHING) for pattern in seen.patterns)
        others = ANYTHING if seen.has_all_members else need
        limit = Object((Layer(names, patterns, others, is_open=True),))
    return [limit if type(limit) is type(shape) else shape for shape in EVERYTHING.values()]


class _Walk:
    def __init__(self, expander: "Expander", top: Place, keyword: str) -> None:
        self.expander, self.top, self.keyword = expander, top, keyword

    def ways(self, place: Place, trail: tuple[Place, ...]) -> list[Way]:
        if not isinstance(place.value, dict):
            return [((), Seen())]
        if place in trail:
            raise refuse(self.top, self.keyword, "is not supported beside a recursive reference")
        found: list[Way] = [((), self._local(place))]
        for keyword in place.value:
            options = self._options(place, keyword, (*trail, place))
            for option in options:
                found = [(both(a, b), one | two) for a, one in found for b, two in option]
                if len(found) > MAX_WAYS:
                    raise refuse(self.top, self.keyword, f"has over {MAX_WAYS} cases")
        return found

    def _local(self, place: Place) -> Seen:
        value, is_inner = place.value, place is not self.top
        # Until 2020, `contains` evaluated nothing.
        is_new = self.expander.document.draft >= 2020 and self.keyword == "unevaluatedItems"
        first = next(
            (value[k] for k in ("prefixItems", "items") if isinstance(value.get(k), list)), []
        )
        has_rest = "items" in value and not isinstance(value["items"], list)
        has_more = "additionalItems" in value and isinstance(value.get("items"), list)
        return Seen(
            _names(value.get("properties")),
            _names(value.get("patternProperties")),
            "additionalProperties" in value or (is_inner and "unevaluatedProperties" in value),
            len(first),
            has_rest or has_more or (is_inner and "unevaluatedItems" in value),
            (self.expander.inner(place, "contains"),) if is_new and "contains" in value else (),
        )

    def _held(self, place: Place, trail: tuple[Place, ...]) -> list[Way]:
        """Ways in which a schema holds."""
        return [(both(((place, True),), need), seen) for need, seen in self.ways(place, trail)]

    def _options(self, place: Place, keyword: str, trail: tuple[Place, ...]) -> Iterator[list[Way]]:
        """For each choice that a keyword leaves, its ways."""
        expander = self.expander
        match keyword:
            case "$ref":
                yield self._held(expander.document.resolve(place, keyword), trail)
            case "$dynamicRef" | "$recursiveRef":
                yield self._held(expander.document.resolve_dynamic(place, keyword), trail)
            case "allOf":
                for branch in expander.branches(place, keyword):
                    yield self._held(branch, trail)
            case "oneOf":
                branches = expander.branches(place, keyword)
                yield [way for branch in branches for way in self._held(branch, trail)]
            case "anyOf":
                yield self._some(expander.branches(place, keyword), trail)
            case "if":
                yield self._conditional(place, trail)
            case "dependentSchemas" | "dependencies":
                raise_if_listed(place, keyword)
                for name in place.value[keyword]:
                    yield self._dependent(place, keyword, name, trail)

    def _some(self, branches: list[Place], trail: tuple[Place, ...]) -> list[Way]:
        """Every set of branches, in all of their ways."""
        ways = [self._held(branch, trail) for branch in branches]
        if 2 ** len(ways) > 2 * MAX_WAYS:
            raise refuse(self.top, self.keyword, f"has over {MAX_WAYS} cases")
        found: list[Way] = []
        for size in range(1, len(ways) + 1):
            for chosen in itertools.combinations(ways, size):
                for parts in itertools.product(*chosen):
                    need, seen = ANYTHING, Seen()
                    for other, more in parts:
                        need, seen = both(need, other), seen | more
                    found.append((need, seen))
        return found

    def _conditional(self, place: Place, trail: tuple[Place, ...]) -> list[Way]:
        expander = self.expander
        test = expander.inner(place, "if")
        holds = ((expander.quietly(place, "if"), True),)
        yes = [(both(holds, need), seen) for need, seen in self.ways(test, trail)]
        no: list[Way] = [(((test, False),), Seen())]
        for keyword, ways in (("then", yes), ("else", no)):
            if keyword in place.value:
                more = self._held(expander.inner(place, keyword), trail)
                ways[:] = [(both(a, b), one | two) for a, one in ways for b, two in more]
        return yes + no

    def _dependent(
        self, place: Place, keyword: str, name: str, trail: tuple[Place, ...]
    ) -> list[Way]:
        document = self.expander.document
        inner = document.at(place.value[keyword][name], f"{place.path}/{keyword}/{name}", place)
        given = document.make({"type": "object", "required": [name]}, place.path, place)
        ways = self._held(inner, trail)
        return [((), Seen()), *((both(((given, True),), need), seen) for need, seen in ways)]


def _names(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ()


def raise_if_listed(place: Place, keyword: str) -> None:
    """Schemas alone evaluate: a list of names beside them is no schema."""
    value = place.value[keyword]
    if not isinstance(value, dict) or any(isinstance(inner, list) for inner in value.values()):
        raise refuse(place, keyword, "with lists is not supported beside `unevaluatedProperties`")
