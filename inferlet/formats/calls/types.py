"""The types that arguments may have, by the declared `parameters`: where a markup has no quotes
around strings, they tell `"12"` from `12`."""

import json
from collections.abc import Mapping
from typing import Any

from inferlet.errors import GrammarError
from inferlet.grammars import engine
from inferlet.grammars.schema.document import Document, load
from inferlet.grammars.schema.expand import Expander
from inferlet.grammars.schema.shapes import (
    Array,
    Boolean,
    Null,
    Number,
    Object,
    Shape,
    String,
    Union,
)

_TYPES: dict[type[Shape], str] = {
    Null: "null", Boolean: "boolean", Number: "number", String: "string", Array: "array",
    Object: "object",
}  # fmt: skip


def types_of(shapes: Union) -> frozenset[str]:
    """JSON Schema's names of the types of some shapes."""
    return frozenset(
        "integer" if isinstance(shape, Number) and shape.is_integer else _TYPES[type(shape)]
        for shape in shapes
    )


def understood(schema: Mapping[str, Any]) -> tuple[Document, Expander]:
    """A schema, and what it means."""
    document = Document(load(json.dumps(schema)))
    return document, Expander(document, engine.is_void)


class Types:
    """Of the functions that were declared."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def of(self, name: str, key: str) -> frozenset[str]:
        """The types of one argument; empty when nothing is known of it."""
        if (name, key) not in self._known:
            try:
                found = self._find(self._schemas.get(name), key)
            except (GrammarError, RecursionError, ValueError):
                found = frozenset()
            self._known[name, key] = found
        return self._known[name, key]

    @staticmethod
    def _find(schema: Any, key: str) -> frozenset[str]:
        if not isinstance(schema, dict) or not schema:
            return frozenset()
        properties = schema.get("properties")
        inner = properties.get(key) if isinstance(properties, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("type"), str):
            return frozenset((inner["type"],))
        document, expander = understood({**schema, "type": "object"})
        found: set[str] = set()
        for shape in expander.union_of(((document.root, True),)):
            need = expander.emptiness.member_need(shape, key)
            found |= types_of(expander.union_of(need))
        return frozenset() if len(found) == len(_TYPES) else frozenset(found)
