"""What each keyword of JSON Schema is. Facts as data: the code that enforces them is elsewhere."""

from typing import Any

# Where schemas are found inside of a schema.
MAPS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
SCHEMAS = frozenset(
    ("additionalProperties", "propertyNames", "items", "additionalItems", "contains", "not", "if",
     "then", "else", "unevaluatedProperties", "unevaluatedItems")
)  # fmt: skip

ENFORCED = frozenset(
    ("type", "enum", "const", "properties", "required", "additionalProperties",
     "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies",
     "dependentRequired", "dependentSchemas", "items", "prefixItems", "additionalItems",
     "minItems", "maxItems", "contains", "minContains", "maxContains", "uniqueItems", "minLength",
     "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
     "exclusiveMaximum", "multipleOf", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
     "$ref", "unevaluatedProperties", "unevaluatedItems")
)  # fmt: skip

# Keywords that assert something about one type only.
TYPE_OF = {
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"
    ),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(
        ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains",
         "minContains", "maxContains", "uniqueItems", "unevaluatedItems"), "array"
    ),
    **dict.fromkeys(
        ("properties", "required", "additionalProperties", "patternProperties", "propertyNames",
         "minProperties", "maxProperties", "unevaluatedProperties"), "object"
    ),
}  # fmt: skip

TYPES = ("null", "boolean", "number", "string", "array", "object")
APPLICATORS = frozenset(
    ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies")
)

# Assertions of old drafts and of well-known extensions, which nothing here enforces. Any other
# unknown word asserts nothing: JSON Schema has it that it is an annotation.
REFUSED = frozenset(
    ("$dynamicRef", "$recursiveRef", "$recursiveAnchor", "extends", "disallow", "divisibleBy",
     "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum",
     "instanceof", "typeof", "regexp", "range", "exclusiveRange", "transform",
     "uniqueItemProperties", "allRequired", "anyRequired", "oneRequired", "patternRequired",
     "prohibited", "deepProperties", "deepRequired", "select", "selectCases", "selectDefault")
)  # fmt: skip
_BY_LOWER = {name.lower(): name for name in ENFORCED}

_DRAFTS = {
    "draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "draft/2019-09": 2019,
    "draft/2020-12": 2020,
}  # fmt: skip


def draft_of(root: Any) -> int:
    """By `$schema`; the newest when it is not given."""
    declared = root.get("$schema") if isinstance(root, dict) else None
    if isinstance(declared, str):
        for part, draft in _DRAFTS.items():
            if part in declared:
                return draft
        if "json-schema.org/schema" in declared:
            return 4  # «the latest» of the years when this was written
    return 2020


def meant(keyword: str) -> str | None:
    """The keyword that a misspelling such as `minlength` means."""
    found = _BY_LOWER.get(keyword.lower())
    return found if found != keyword else None
