"""Whether a shape has any value. «No» is proved; a shape that is not empty here may still be.

What is left is found by the rules: one that derives no text is dropped with all that need it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from inferlet.grammars.regex import tree
from inferlet.grammars.schema import limits, numbers
from inferlet.grammars.schema.shapes import (
    Array,
    Layer,
    Need,
    Number,
    Object,
    Shape,
    Some,
    String,
    both,
    item_need,
)

if TYPE_CHECKING:
    from inferlet.grammars.schema.expand import Expander

MAX_DEPTH = 6  # of values in values


class Emptiness:
    """Memory of what was found."""

    def __init__(
        self,
        expander: "Expander",
        is_void: Callable[[tree.Node], bool],
        is_possible: Callable[["Expander", Object, Some], bool],
    ) -> None:
        self._expander = expander
        self._is_possible = is_possible
        self._is_void = is_void
        self._open: set[Need] = set()
        self._found: dict[Need, bool] = {}
        self._tables: dict[int, tuple[Layer, dict[str, Need]]] = {}
        self._strings: dict[String, bool] = {}

    def of_need(self, need: Need) -> bool:
        """True when no value satisfies all terms."""
        known = self._found.get(need)
        if known is not None:
            return known
        if need in self._open or len(self._open) >= MAX_DEPTH:
            return False
        self._open.add(need)
        try:
            found = not self._expander.union_of(need)
        finally:
            self._open.discard(need)
        self._found[need] = found
        return found

    def of_shape(self, shape: Shape) -> bool:
        match shape:
            case Number():
                return numbers.is_empty(shape)
            case String():
                return self._of_string(shape)
            case Array(low=low, high=high):
                if high is not None and low > high:
                    return True
                count = min(low, len(shape.prefix) + 1)
                return any(self.of_need(item_need(shape, index)) for index in range(count))
            case Object(required=required, some=some):
                if any(self.of_need(self.member_need(shape, name)) for name in required):
                    return True
                return not all(self._is_possible(self._expander, shape, one) for one in some)
        return False

    def _of_string(self, shape: String) -> bool:
        if shape.values is not None:
            return not shape.values
        if not shape.patterns:
            return False
        if len(shape.patterns) == 1:
            length = tree.shortest(shape.patterns[0])
            if length is not None and shape.low <= length <= (
                length if shape.high is None else shape.high
            ):
                return False
        found = self._strings.get(shape)
        if found is None:
            found = self._strings[shape] = self._is_void(tree_of(shape))
        return found

    def member_need(self, shape: Object, name: str) -> Need:
        """What the member of this name satisfies."""
        need: Need = ()
        for layer in shape.layers:
            listed = self._listed(layer).get(name)
            if layer.patterns:
                matches = {
                    pattern: bool(limits.matcher(limits.search(pattern)).fullmatch(name))
                    for pattern, _ in layer.patterns
                }
                more = layer.of_name(listed, matches)
            else:
                more = layer.others if listed is None else listed
            need = both(need, more) if need and more else need or more
        if shape.names and not self.allows_name(shape, name):
            need = both(need, ((self._expander.document.false, True),))
        return need

    def _listed(self, layer: Layer) -> dict[str, Need]:
        """By name; an object may have thousands of members."""
        known = self._tables.get(id(layer))
        if known is None:
            known = self._tables[id(layer)] = (layer, dict(layer.properties))
        return known[1]

    def allows_name(self, shape: Object, name: str) -> bool:
        """Whether `propertyNames` does."""
        for option in self._expander.union_of(shape.names):
            if isinstance(option, String):
                here = String(option.patterns, option.low, option.high, (name,))
                is_listed = option.values is None or name in option.values
                if is_listed and limits.simplified(here) is not None:
                    return True
        return False


def tree_of(shape: String) -> tree.Node:
    """All limits of a string as one tree."""
    if shape.values is not None:
        return tree.either(*map(tree.literal, shape.values))
    parts = list(shape.patterns)
    if shape.low or shape.high is not None:
        parts.append(tree.Repeat(tree.ANY_TEXT.item, shape.low, shape.high))
    if not parts:
        return tree.ANY_TEXT
    return parts[0] if len(parts) == 1 else tree.Both(tuple(parts))
