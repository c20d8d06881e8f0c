"""Members with names that an object does not list, and those of which there must be some.

What a member may be depends on the patterns that its name has: names fall into regions, one for
each set of patterns that some name has.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from inferlet.grammars.regex import tree
from inferlet.grammars.schema import limits
from inferlet.grammars.schema.document import refuse
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.shapes import Layer, Need, Object, Shape, Some, String, both

if TYPE_CHECKING:
    from inferlet.grammars.schema.expand import Expander

MAX_REGIONS = 64
FEW = 3  # patterns, whose regions are asked of the engine only when they matter

Region = tuple[tree.Node, Need]  # names, and what the values satisfy


def listed(shape: Object) -> list[str]:
    """Names of which the object says something by themselves."""
    names = [name for layer in shape.layers for name, _ in layer.properties]
    return list(dict.fromkeys((*names, *shape.required)))


def regions(expander: "Expander", shape: Object) -> list[Region]:
    """Members of other names, those left out that no value satisfies."""
    layers = _closed(expander, shape)
    patterns = list(dict.fromkeys(p for layer in layers for p, _ in layer.patterns))
    if not patterns:
        # Most objects: no names are built when no value is possible anyway.
        need = _need_of(layers, {})
        if expander.emptiness.of_need(need):
            return []
    base = _limits_of_names(expander, shape)
    found: list[tuple[list[tree.Node], dict[str, bool]]] = [(base, {})]
    is_long = len(patterns) > FEW
    for pattern in patterns:
        node = limits.search(pattern)
        split = [
            ([*parts, node if is_match else tree.Not(node)], {**matches, pattern: is_match})
            for parts, matches in found
            for is_match in (True, False)
        ]
        found = [one for one in split if not (is_long and expander.is_void(all_of(one[0])))]
        if len(found) > MAX_REGIONS:
            raise refuse(shape.place or "#", "patternProperties",
                         f"tells over {MAX_REGIONS} kinds of names apart")  # fmt: skip
    result = []
    may_be_void = (patterns and not is_long) or shape.names
    for parts, matches in found:
        need = _need_of(layers, matches)
        node = all_of(parts)
        if not expander.emptiness.of_need(need) and not (may_be_void and expander.is_void(node)):
            result.append((node, need))
    return result


def _need_of(layers: list[Layer], matches: dict[str, bool]) -> Need:
    need: Need = ()
    for layer in layers:
        need = both(need, layer.of_name(None, matches))
    return need


def all_of(parts: list[tree.Node]) -> tree.Node:
    if not parts:
        return tree.ANY_TEXT
    return parts[0] if len(parts) == 1 else tree.Both(tuple(parts))


def _limits_of_names(expander: "Expander", shape: Object) -> list[tree.Node]:
    parts: list[tree.Node] = []
    if shape.names:
        options = expander.union_of(shape.names)
        texts = [tree_of(option) for option in options if isinstance(option, String)]
        parts.append(tree.either(*texts) if texts else tree.NOTHING)
    if names := listed(shape):
        parts.append(tree.Not(tree.either(*map(tree.literal, names))))
    return parts


def _closed(expander: "Expander", shape: Object) -> list[Layer]:
    """A schema that lists properties allows no others, unless one here says what they are."""
    layers = [Layer((), layer.patterns, layer.others) for layer in shape.layers]
    is_listing = any(layer.is_listing for layer in shape.layers)
    if is_listing and not any(layer.is_open for layer in shape.layers):
        patterns = tuple((p, ()) for layer in layers for p, _ in layer.patterns)
        layers.append(Layer((), patterns, ((expander.document.false, True),)))
    return layers


# ---- members that there must be


def has_name(some: Some, name: str) -> bool:
    return bool(limits.matcher(some.names).fullmatch(name))


def split(shape: Shape) -> Iterator[Shape]:
    """One shape for each member of the list that may be the one, and one for all other members."""
    index = next(
        (i for i, some in enumerate(getattr(shape, "some", ())) if not some.is_unlisted), None
    )
    if index is None:
        yield shape
        return
    some = shape.some[index]
    rest = (*shape.some[:index], *shape.some[index + 1 :])
    for name in listed(shape):
        if has_name(some, name):
            layer = Layer(((name, some.need),))
            required = tuple(dict.fromkeys((*shape.required, name)))
            yield from split(
                replace(shape, layers=(*shape.layers, layer), required=required, some=rest)
            )
    other = (*rest, replace(some, is_unlisted=True))
    yield from split(replace(shape, some=tuple(dict.fromkeys(other))))


def is_possible(expander: "Expander", shape: Object, some: Some) -> bool:
    """Whether a member of the object may be the one; True also where that is not known."""
    is_empty = expander.emptiness.of_need
    if not some.is_unlisted:
        for name in listed(shape):
            need = expander.emptiness.member_need(shape, name)
            if has_name(some, name) and not is_empty(both(need, some.need)):
                return True
    return any(
        not is_empty(both(need, some.need)) and not expander.is_void(tree.Both((node, some.names)))
        for node, need in regions(expander, shape)
    )
