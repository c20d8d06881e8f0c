"""Keywords of arrays and objects become shapes; their negations too, where there is one."""

from typing import TYPE_CHECKING, Any

from inferlet.grammars.schema import keywords, limits
from inferlet.grammars.schema.document import Document, Place, escape, refuse
from inferlet.grammars.schema.shapes import (
    ANYTHING,
    Array,
    Contains,
    Layer,
    Need,
    Object,
    Shape,
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
    return _unevaluated(place, "unevaluatedItems", ("contains",))


def _unevaluated(place: Place, keyword: str, others: tuple[str, ...] = ()) -> str | None:
    """The keyword when it asserts something; beside schemas that evaluate members it is refused."""
    value = place.value
    if keyword not in value or value[keyword] is True:
        return None
    for other in value:
        if other in keywords.APPLICATORS or other in others:
            raise refuse(place, keyword, f"is not supported beside `{other}`")
    return keyword


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
    if keyword == "items" and not _prefix(expander, place):
        wrong = Contains(_need(_at(expander, place, keyword), False), 1, None, ANYTHING)
        return [Array(contains=(wrong,), place=place)]
    if keyword == "contains" and not {"minContains", "maxContains"} & set(value):
        return [Array(items=_need(_at(expander, place, keyword), False), place=place)]
    if keyword == "uniqueItems" and value[keyword] is False:
        return []
    if keyword == "additionalItems" and not isinstance(value.get("items"), list):
        return []
    if keyword in ("minContains", "maxContains") and "contains" not in value:
        return []
    raise refuse(place, keyword, "cannot be negated")


# ---- objects


def _map(place: Place, keyword: str) -> dict[str, Any]:
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
            for name in _map(place, "properties")
        ),
        tuple(
            (pattern, _need(_at(expander, place, "patternProperties", pattern)))
            for pattern in _map(place, "patternProperties")
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
            for name in _map(place, keyword)
        ]
    if keyword == "minProperties":
        limit = limits.count(place, keyword)
        return [Object(high=limit - 1, place=place)] if limit else []
    if keyword == "maxProperties":
        return [Object(low=limits.count(place, keyword) + 1, place=place)]
    is_empty = keyword == "patternProperties" and not value[keyword]
    if value[keyword] is True or is_empty:
        return []
    raise refuse(place, keyword, "cannot be negated")


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


def not_constant(place: Place, keyword: str, shape: Shape) -> Shape:
    if isinstance(shape, Array) and shape.high == 0:
        return Array(low=1)
    if isinstance(shape, Object) and not shape.required:
        return Object(low=1)
    raise refuse(place, keyword, "with an array or object cannot be negated")
