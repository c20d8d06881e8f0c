"""The grammar of calls: one or more of them, as text for the grammar engine."""

import json
from typing import Any

from inferlet.errors import GrammarError
from inferlet.formats.calls.hermes import Hermes
from inferlet.formats.calls.scan import Markup
from inferlet.formats.calls.tagged import QwenXml
from inferlet.grammars.compile import add_json_schema
from inferlet.grammars.lark import Lark, Sequence, Symbol


def lark_of(functions: list[dict[str, Any]], markup: Markup) -> str:
    """`name` is one of the functions', the arguments satisfy its `parameters`."""
    lark = Lark()
    write = _tagged if isinstance(markup, QwenXml) else _hermes
    call = lark.rule(*(write(lark, function, _parameters(function)) for function in functions))
    later = lark.rule((_literal(lark, "\n"), Symbol(call)))
    text = lark.text(lark.rule((Symbol(call), Symbol(later, 0, None))))
    if text is None:
        raise GrammarError("no call satisfies these `parameters`")
    return text


def _hermes(lark: Lark, function: dict[str, Any], schema: dict[str, Any]) -> Sequence:
    name = add_json_schema(lark, json.dumps(schema))
    if name is None:
        raise GrammarError(f"no arguments satisfy the `parameters` of {function['name']!r}")
    before, after = Hermes.frame(function["name"])
    return _literal(lark, before), Symbol(name), _literal(lark, after)


def _tagged(lark: Lark, function: dict[str, Any], schema: dict[str, Any]) -> Sequence:
    """Arguments in the order of the schema, each in its tag."""
    before, after = QwenXml.frame(function["name"])
    properties, required = schema.get("properties", {}), schema.get("required", [])
    unknown = sorted(set(schema) - _OBJECT_KEYS) + sorted(set(required) - set(properties))
    if unknown:
        raise GrammarError(f"{unknown[0]!r} in `parameters` of {function['name']!r}: {_LIMIT}")
    parts = [_literal(lark, before)]
    for key, inner in properties.items():
        head, tail = QwenXml.tag(key)
        definitions = {k: schema[k] for k in _DEFINITIONS & set(schema)}
        value = _value(lark, key, inner, definitions, _quoted(tail))
        rule = lark.rule((_literal(lark, head), *value))
        parts.append(Symbol(rule, int(key in required), 1))
    return (*parts, _literal(lark, after))


_ANNOTATIONS = {"title", "description", "default", "examples"}
_DEFINITIONS = {"$defs", "definitions"}
_OBJECT_KEYS = {"type", "properties", "required", "additionalProperties", "$schema", "$id"}
_OBJECT_KEYS |= _ANNOTATIONS | _DEFINITIONS
_LIMIT = "this model's call markup cannot be held to it"


def _value(lark: Lark, key: str, schema: Any, definitions: dict[str, Any], tail: str) -> Sequence:
    """A value and its closing tag. Strings are written without quotes, and here without `<`: so
    no text is taken for a tag."""
    end = Symbol(lark.terminal(tail))
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string":
        words = schema.get("enum")
        if set(schema) - _ANNOTATIONS - {"type", "enum"}:
            raise GrammarError(f"argument {key!r} limits its text: {_LIMIT}")
        if words is None:
            return (Symbol(lark.terminal(f"/[^<]*/ {tail}")),)  # one: it ends in a newline too
        if not all(isinstance(word, str) and "<" not in word for word in words):
            raise GrammarError(f"`enum` of argument {key!r}: {_LIMIT}")
        return Symbol(lark.rule(*((_literal(lark, word),) for word in words))), end
    if not isinstance(kind, str):
        raise GrammarError(f"argument {key!r} has no single `type`: {_LIMIT}")
    name = add_json_schema(lark, json.dumps({**schema, **definitions}))
    if name is None:
        raise GrammarError(f"no value satisfies the schema of argument {key!r}")
    return Symbol(name), end


def _literal(lark: Lark, text: str) -> Symbol:
    return Symbol(lark.terminal(_quoted(text)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, which are an object whatever else it says."""
    schema = function.get("parameters") or {"properties": {}}
    if not isinstance(schema, dict):
        raise GrammarError(f"`parameters` of {function['name']!r} is no JSON object")
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        raise GrammarError(f"`parameters` of {function['name']!r} allows no object")
    return {**schema, "type": "object"}
