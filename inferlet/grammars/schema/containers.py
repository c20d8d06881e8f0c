"""Keywords of arrays and objects become shapes; their negations too, where there is one."""

from typing import TYPE_CHECKING, Any

from inferlet.grammars.regex import tree
from inferlet.grammars.schema import keywords, limits
from inferlet.grammars.schema.document import Document, Place, escape, refuse
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.shapes import (
    ANYTHING,
    Array,
    Contains,
    Layer,
    Need,
    Object,
    Shape,
    Some,
    String,
    Union,
)

if TYPE_CHECKING:
    from inferlet.grammars.schema.expand import Expander

_ARRAY = tuple(name for name, kind in keywords.TYPE_OF.items() if kind == "array")
_OBJECT = tuple(name for name, kind in keywords.TYPE_OF.items() if kind == "object")


def _need(place: Place, sign: bool = True) -> Need:
    return ANYTHING if place.value is sign else ((place, sign),)


def _at(expander: "Expander", place: Place, *path: str) -> Place:
    value = place.value
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    where = "/".join(escape(part) for part in path)
    return expander.document.at(value, f"{place.path}/{where}", place)


# ---- arrays


def _prefix(expander: "Expander", place: Place) -> list[Place]:
    """Schemas of the first items; before 2020 these were a list in `items`."""
    for keyword in ("prefixItems", "items"):
        if isinstance(place.value.get(keyword), list):
            length = len(place.value[keyword])
            return [_at(expander, place, keyword, str(index)) for index in range(length)]
    if "prefixItems" in place.value:
        raise refuse(place, "prefixItems", "must be a list of schemas")
    return []


def _rest_keyword(place: Place) -> str | None:
    """The keyword that says what further items are."""
    value = place.value
    if "items" in value and not isinstance(value["items"], list):
        return "items"
    if "additionalItems" in value and isinstance(value.get("items"), list):
        return "additionalItems"
    return _unevaluated(place, "unevaluatedItems")


def _unevaluated(place: Place, keyword: str) -> str | None:
    """The keyword when it asserts something by itself: not beside schemas that evaluate members,
    for which `unevaluated` stands."""
    value = place.value
    if keyword not in value or value[keyword] is True:
        return None
    return None if keywords.has_evaluating(value) else keyword


def array_limits(expander: "Expander", place: Place) -> Array | None:
    value = place.value
    if not any(keyword in value for keyword in _ARRAY):
        return None
    rest = _rest_keyword(place)
    high = limits.count(place, "maxItems")
    low = limits.count(place, "minItems", 0)
    if not isinstance(value.get("uniqueItems", False), bool):
        raise refuse(place, "uniqueItems", "must be a boolean")
    if high is not None and low > high:
        low, high = 1, 0  # nothing fits: seen where shapes are simplified
    return Array(
        prefix=tuple(_need(item) for item in _prefix(expander, place)),
        items=_need(_at(expander, place, rest)) if rest else ANYTHING,
        low=low,
        high=high,
        is_unique=value.get("uniqueItems", False),
        contains=_contains(expander, place),
        place=place,
    )


def _contains(expander: "Expander", place: Place) -> tuple[Contains, ...]:
    if "contains" not in place.value:
        return ()
    item = _at(expander, place, "contains")
    low = limits.count(place, "minContains", 1)
    high = limits.count(place, "maxContains")
    if low == 0 and high is None:
        return ()
    return (Contains(_need(item), low, high, ANYTHING if high is None else _need(item, False)),)


def not_array(expander: "Expander", place: Place, keyword: str) -> Union:
    value = place.value
    if keyword == "minItems":
        limit = limits.count(place, keyword)
        return [Array(high=limit - 1, place=place)] if limit else []
    if keyword == "maxItems":
        return [Array(low=limits.count(place, keyword) + 1, place=place)]
    if keyword == "prefixItems" or (keyword == "items" and isinstance(value["items"], list)):
        prefix = _prefix(expander, place)
        return [
            Array((ANYTHING,) * index + (_need(item, False),), low=index + 1, place=place)
            for index, item in enumerate(prefix)
        ]
    if keyword in ("items", "additionalItems", "unevaluatedItems"):
        if keyword != _rest_keyword(place):
            return []
        start = len(_prefix(expander, place))
        wrong = Contains(_need(_at(expander, place, keyword), False), 1, None, ANYTHING, start)
        return [Array(contains=(wrong,), low=start + 1, place=place)]
    if keyword == "contains":
        return _not_contains(expander, place)
    if keyword in ("minContains", "maxContains"):
        return []
    if keyword == "uniqueItems" and value[keyword] is False:
        return []
    raise refuse(place, keyword, "cannot be negated")


def _not_contains(expander: "Expander", place: Place) -> Union:
    """Fewer items than there must be, or more than there may be."""
    item = _at(expander, place, "contains")
    low, high = limits.count(place, "minContains", 1), limits.count(place, "maxContains")
    need, unless = _need(item), _need(item, False)
    found: Union = []
    if low == 1:
        found.append(Array(items=unless, place=place))
    elif low:
        found.append(Array(contains=(Contains(need, 0, low - 1, unless),), place=place))
    if high is not None:
        more = Contains(need, high + 1, None, ANYTHING)
        found.append(Array(contains=(more,), low=high + 1, place=place))
    return found


# ---- objects


def map_of(place: Place, keyword: str) -> dict[str, Any]:
    found = place.value.get(keyword, {})
    if not isinstance(found, dict):
        raise refuse(place, keyword, "must be an object of schemas")
    return found


def required_of(place: Place) -> tuple[str, ...]:
    names = place.value.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refuse(place, "required", "must be a list of names")
    return tuple(dict.fromkeys(names))


def object_limits(expander: "Expander", place: Place) -> Object | None:
    value = place.value
    if not any(keyword in value for keyword in _OBJECT):
        return None
    others = "additionalProperties" if "additionalProperties" in value else None
    others = others or _unevaluated(place, "unevaluatedProperties")
    layer = Layer(
        tuple(
            (name, _need(_at(expander, place, "properties", name)))
            for name in map_of(place, "properties")
        ),
        tuple(
            (pattern, _need(_at(expander, place, "patternProperties", pattern)))
            for pattern in map_of(place, "patternProperties")
        ),
        _need(_at(expander, place, others)) if others else ANYTHING,
        is_listing="properties" in value,
        is_open="additionalProperties" in value or "unevaluatedProperties" in value,
    )
    for pattern, _ in layer.patterns:
        limits.pattern_of(place, "patternProperties", pattern)
    low, high = limits.count(place, "minProperties", 0), limits.count(place, "maxProperties")
    names = _need(_at(expander, place, "propertyNames")) if "propertyNames" in value else ANYTHING
    return Object((layer,), required_of(place), low, high, names, place)


def not_object(expander: "Expander", place: Place, keyword: str) -> Union:
    value = place.value
    if keyword == "required":
        never = _need(expander.document.false)
        return [Object((Layer(((name, never),)),), place=place) for name in required_of(place)]
    if keyword == "properties":
        return [
            Object((Layer(((name, _need(_at(expander, place, keyword, name), False)),)),), (name,))
            for name in map_of(place, keyword)
        ]
    if keyword == "minProperties":
        limit = limits.count(place, keyword)
        return [Object(high=limit - 1, place=place)] if limit else []
    if keyword == "maxProperties":
        return [Object(low=limits.count(place, keyword) + 1, place=place)]
    if value[keyword] is True:
        return []
    return [Object(some=(some,), place=place) for some in _some_wrong(expander, place, keyword)]


def _some_wrong(expander: "Expander", place: Place, keyword: str) -> list[Some]:
    """Members that each break a keyword which says something of names."""
    if keyword == "patternProperties":
        return [
            Some(
                limits.pattern_of(place, keyword, pattern),
                _need(_at(expander, place, keyword, pattern), False),
            )
            for pattern in map_of(place, keyword)
        ]
    if keyword == "propertyNames":
        wrong = expander.union_of(_need(_at(expander, place, keyword), False))
        texts = [tree_of(shape) for shape in wrong if isinstance(shape, String)]
        return [Some(tree.either(*texts), ANYTHING)] if texts else []
    if keyword == "unevaluatedProperties" and (
        "additionalProperties" in place.value or not _unevaluated(place, keyword)
    ):
        return []
    patterns = [limits.search(pattern) for pattern in map_of(place, "patternProperties")]
    names = others_than(list(map_of(place, "properties")), patterns)
    return [Some(names, _need(_at(expander, place, keyword), False))]


def others_than(names: list[str], patterns: list[tree.Node]) -> tree.Node:
    """Every other name."""
    parts = [tree.Not(pattern) for pattern in patterns]
    if names:
        parts.append(tree.Not(tree.either(*map(tree.literal, names))))
    if not parts:
        return tree.ANY_TEXT
    return parts[0] if len(parts) == 1 else tree.Both(tuple(parts))


# ---- constants


def constant(document: Document, value: list | dict, path: str) -> Shape:
    """An array or object that is listed in `const` or `enum`."""

    def exactly(inner: Any) -> Need:
        return ((document.make({"const": inner}, path), True),)

    never = _need(document.false)
    if isinstance(value, list):
        return Array(tuple(map(exactly, value)), never, len(value), len(value))
    members = tuple((name, exactly(inner)) for name, inner in value.items())
    return Object((Layer(members, (), never, is_open=True),), tuple(value))


def not_constant(document: Document, shape: Array | Object) -> Union:
    """Every other array or object than a constant one."""

    def other(need: Need) -> Need:
        return tuple((place, not sign) for place, sign in need)

    if isinstance(shape, Array):
        found: Union = [Array(low=shape.low + 1)]
        if shape.low:
            found.append(Array(high=shape.low - 1))
        return found + [
            Array((ANYTHING,) * index + (other(item),), low=index + 1)
            for index, item in enumerate(shape.prefix)
        ]
    never = _need(document.false)
    found = [Object(some=(Some(others_than(list(shape.required), []), ANYTHING),))]
    for name, need in shape.layers[0].properties:
        found.append(Object((Layer(((name, never),)),)))
        found.append(Object((Layer(((name, other(need)),)),), (name,)))
    return found
