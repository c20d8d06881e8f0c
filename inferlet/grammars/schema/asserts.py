"""Keywords that assert by themselves: `type`, values, and the limits of each type."""

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inferlet.grammars.regex import tree
from inferlet.grammars.schema import containers, formats, keywords, shapes
from inferlet.grammars.schema.document import Place, refuse
from inferlet.grammars.schema.limits import count, number, pattern_of, simplified
from inferlet.grammars.schema.shapes import EVERYTHING, Boolean, Null, Number, Shape, String, Union

if TYPE_CHECKING:
    from inferlet.grammars.schema.expand import Expander


def positive(expander: "Expander", place: Place) -> Union:
    """One shape for each type that is left, or those of the values that are listed."""
    found = _typed(place)
    for keyword in ("const", "enum"):
        if keyword in place.value:
            found = expander.meet(found, values_of(expander, place, keyword), place)
    for kind in dict.fromkeys(map(type, found)):
        limit = _LIMITS.get(kind)
        if limit and (more := limit(expander, place)) is not None:
            mine = [shape for shape in found if type(shape) is kind]
            others = [shape for shape in found if type(shape) is not kind]
            found = [*others, *expander.meet(mine, [more], place)]
    return found


def negative(expander: "Expander", place: Place) -> Union:
    """Each keyword's own negation."""
    found: Union = []
    kinds = {type(shape) for shape in _typed(place)}
    for keyword in place.value:
        if keyword == "type":
            found += _not_typed(place)
        elif keyword in ("const", "enum"):
            found += _not_values(expander, place, keyword)
        elif keyword in keywords.TYPE_OF:
            shape = type(EVERYTHING[keywords.TYPE_OF[keyword]])
            if shape in kinds:
                found += _NEGATIONS[shape](expander, place, keyword)
    return [shape for shape in found if simplified(shape) is not None]


def _type_names(place: Place) -> list[str]:
    names = place.value.get("type", list(keywords.TYPES))
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refuse(place, "type", "must be a string or a list of strings")
    for name in names:
        if name not in keywords.TYPES and name != "integer":
            raise refuse(place, "type", f"`{name}` is no JSON type")
    return names


def _typed(place: Place) -> Union:
    names = _type_names(place)
    found: Union = [EVERYTHING[name] for name in keywords.TYPES if name in names]
    if "integer" in names and "number" not in names:
        found.append(Number(is_integer=True))
    return found


def _not_typed(place: Place) -> Union:
    names = _type_names(place)
    found = [
        shape for name, shape in EVERYTHING.items()
        if name not in names and not (name == "number" and "integer" in names)
    ]  # fmt: skip
    if "integer" in names and "number" not in names:
        found.append(Number(is_fraction=True))
    return found


# ---- const and enum


def _listed(place: Place, keyword: str) -> list[Any]:
    if keyword == "const":
        return [place.value["const"]]
    values = place.value["enum"]
    if not isinstance(values, list):
        raise refuse(place, "enum", "must be a list")
    return values


def values_of(expander: "Expander", place: Place, keyword: str) -> Union:
    """Scalars of one type share a shape; arrays and objects are taken apart."""
    by_type: dict[type, dict] = {}
    found: Union = []
    for index, value in enumerate(_listed(place, keyword)):
        if isinstance(value, list | dict):
            path = f"{place.path}/{keyword}/{index}"
            found.append(containers.constant(expander.document, value, path))
        else:
            kind = Decimal if isinstance(value, int) else type(value)
            kind = bool if isinstance(value, bool) else kind
            by_type.setdefault(kind, {})[value] = None
    for kind, values in by_type.items():
        if kind is bool:
            found.append(Boolean(frozenset(values)))
        elif kind is Decimal:
            found.append(Number(values=tuple(Decimal(value) for value in values)))
        else:
            found.append(String(values=tuple(values)) if kind is str else Null())
    return found


def _not_values(expander: "Expander", place: Place, keyword: str) -> Union:
    found: dict[type, Shape | None] = {type(shape): shape for shape in EVERYTHING.values()}
    containing: dict[type, Union] = {shapes.Array: [], shapes.Object: []}
    for shape in values_of(expander, place, keyword):
        match shape:
            case Null():
                found[Null] = None
            case Boolean(values):
                left = Boolean().values - values
                found[Boolean] = Boolean(left) if left else None
            case Number(values=values):
                found[Number] = Number(excluded=values)
            case String(values=values):
                texts = tree.either(*map(tree.literal, values))
                found[String] = String((tree.Not(texts),))
            case _:
                left = containers.not_constant(expander.document, shape)
                rest = containing[type(shape)] or [found.pop(type(shape))]
                containing[type(shape)] = expander.meet(rest, left, place)
    left = [shape for shape in found.values() if shape is not None]
    return [*left, *containing[shapes.Array], *containing[shapes.Object]]


# ---- numbers


def _number_limits(expander: "Expander", place: Place) -> Number | None:
    del expander
    found = Number()
    for keyword in place.value:
        if keywords.TYPE_OF.get(keyword) == "number":
            found = shapes.intersect(found, _number_limit(place, keyword))
    return None if found == Number() else found


def _number_limit(place: Place, keyword: str) -> Number:
    value = place.value
    if keyword == "multipleOf":
        step = number(place, keyword)
        if step <= 0:
            raise refuse(place, keyword, "must be over 0")
        return Number(multiples=(step.normalize(),))
    end = "minimum" if keyword in ("minimum", "exclusiveMinimum") else "maximum"
    exclusive = "exclusiveM" + end[1:]
    if isinstance(value.get(exclusive), bool):  # draft 4
        if keyword == exclusive:
            return Number()
        bound = (number(place, keyword), value[exclusive])
    else:
        bound = (number(place, keyword), keyword == exclusive)
    return Number(low=bound) if end == "minimum" else Number(high=bound)


def _not_number(expander: "Expander", place: Place, keyword: str) -> Union:
    del expander
    limit = _number_limit(place, keyword)
    if limit.multiples:
        is_one = limit.multiples == (Decimal(1),)
        return [Number(is_fraction=True) if is_one else Number(indivisible=limit.multiples)]
    if limit.low:
        return [Number(high=(limit.low[0], not limit.low[1]))]
    if limit.high:
        return [Number(low=(limit.high[0], not limit.high[1]))]
    return []


# ---- strings


def _string_limits(expander: "Expander", place: Place) -> String | None:
    patterns = tuple(
        _string_pattern(expander, place, keyword)
        for keyword in ("pattern", "format") if keyword in place.value
    )  # fmt: skip
    patterns = tuple(pattern for pattern in patterns if pattern != tree.ANY_TEXT)
    low, high = count(place, "minLength", 0), count(place, "maxLength")
    found = String(patterns, low, high)
    return None if found == String() else found


def _string_pattern(expander: "Expander", place: Place, keyword: str) -> tree.Node:
    value = place.value[keyword]
    if keyword == "pattern":
        return pattern_of(place, keyword, value)
    found = formats.tree_of(value) if isinstance(value, str) else None
    if found is None:
        document = expander.document
        if document.is_declared and not formats.is_defined(value, document.draft):
            return tree.ANY_TEXT
        names = ", ".join(f"`{name}`" for name in formats.PATTERNS)
        raise refuse(place, "format", f"{value!r} is not supported", f"supported are {names}")
    return found


def _not_string(expander: "Expander", place: Place, keyword: str) -> Union:
    if keyword in ("pattern", "format"):
        pattern = _string_pattern(expander, place, keyword)
        return [] if pattern == tree.ANY_TEXT else [String((tree.Not(pattern),))]
    limit = count(place, keyword)
    if keyword == "minLength":
        return [String(high=limit - 1)] if limit else []
    return [String(low=limit + 1)]


_LIMITS: dict[type, Callable[..., Shape | None]] = {
    Number: _number_limits,
    String: _string_limits,
    shapes.Array: containers.array_limits,
    shapes.Object: containers.object_limits,
}
_NEGATIONS: dict[type, Callable[..., Union]] = {
    Number: _not_number,
    String: _not_string,
    shapes.Array: containers.not_array,
    shapes.Object: containers.not_object,
}
