"""What each keyword of JSON Schema is. Facts as data: the code that enforces them is elsewhere."""

from decimal import Decimal
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
     "$ref", "unevaluatedProperties", "unevaluatedItems",
     "strictProperties")  # of JSON Hyper-Schema's tools: all that are listed, and no others
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
    (
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "dependentSchemas",
        "dependencies",
    )
)


def has_evaluating(value: dict) -> bool:
    """Whether there are schemas that evaluate members or items of the same value."""
    return "contains" in value or any(keyword in APPLICATORS for keyword in value)


# Assertions of old drafts and of well-known extensions, which nothing here enforces: refused in
# every document, since somebody enforces them.
REFUSED = frozenset(
    ("extends", "disallow", "divisibleBy",
     "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum",
     "instanceof", "typeof", "regexp", "range", "exclusiveRange", "transform",
     "uniqueItemProperties", "allRequired", "anyRequired", "oneRequired", "patternRequired",
     "prohibited", "deepProperties", "deepRequired", "select", "selectCases", "selectDefault")
)  # fmt: skip

# Words that never assert: of JSON Schema itself, and of vocabularies that describe forms,
# documents and code. With one of `NOTES` in front, a word is its author's own note.
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "$schema", "$id", "$comment", "id", "$defs", "definitions", "$anchor", "$dynamicAnchor",
     "$recursiveAnchor", "$vocabulary", "contentEncoding", "contentMediaType", "contentSchema",
     # OpenAPI, Hyper-Schema
     "example", "externalDocs", "xml", "discriminator", "nullable", "links", "base", "media",
     "readonly", "self",
     # editors and forms
     "markdownDescription", "enumDescriptions", "markdownEnumDescriptions", "enumNames",
     "defaultSnippets", "deprecationMessage", "errorMessage", "doNotSuggest", "comment",
     "propertyOrder", "preferredOrder", "hidden", "stability", "ui", "uiSchema",
     # generators of code
     "javaType", "javaName", "javaInterfaces", "extendsJavaClass", "tsType", "tsEnumNames",
     "existingJavaType", "$target", "$default")
)  # fmt: skip
# Words of catalogues (of packages, of Avro, of command lines) that describe a schema when they hold
# a text or some. With a schema under it, such a word is rather a property in the wrong place.
DESCRIBING = frozenset(
    ("name", "version", "namespace", "doc", "alias", "aliases", "author", "license", "copyright",
     "homepage", "label", "summary")
)  # fmt: skip
NOTES = ("x-", "_", "$$", "@")  # the last one: JSON-LD
_BY_LOWER = {name.lower(): name for name in ENFORCED}

_DRAFTS = {
    "draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "draft/2019-09": 2019,
    "draft/2020-12": 2020,
}  # fmt: skip
NEWEST = 2020


def declared_draft(root: Any) -> int | None:
    """The draft that the document names in `$schema`."""
    declared = root.get("$schema") if isinstance(root, dict) else None
    if not isinstance(declared, str):
        return None
    found = next((draft for part, draft in _DRAFTS.items() if part in declared), None)
    if found is None and "json-schema.org/schema" in declared:
        return 4  # «the latest» of the years when this was written
    return found


def is_note(keyword: str, value: Any) -> bool:
    """Whether a word with this value asserts nothing in any document."""
    if keyword in DESCRIBING:
        texts = value if isinstance(value, list) else [value]
        return all(isinstance(text, str) or type(text) in (int, Decimal) for text in texts)
    return keyword in ANNOTATIONS or keyword.startswith(NOTES)


def meant(keyword: str) -> str | None:
    """The keyword that a misspelling such as `minlength` means."""
    found = _BY_LOWER.get(keyword.lower())
    return found if found != keyword else None
