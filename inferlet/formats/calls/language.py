"""The grammar of calls: one or more of them, as text for the grammar engine."""

import json
from typing import Any

from inferlet.errors import GrammarError
from inferlet.formats.calls.scan import Markup
from inferlet.grammars.compile import add_json_schema
from inferlet.grammars.lark import Lark, Symbol


def lark_of(functions: list[dict[str, Any]], markup: Markup) -> str:
    """`name` is one of the functions', the arguments satisfy its `parameters`."""
    lark = Lark()
    after = _literal(lark, markup.after)
    bodies = [(_literal(lark, markup.before(f["name"])), _arguments(lark, f)) for f in functions]
    call = lark.rule(*((before, arguments, after) for before, arguments in bodies))
    later = lark.rule((_literal(lark, markup.between), Symbol(call)))
    start = lark.rule((Symbol(call), Symbol(later, 0, None)))
    text = lark.text(start)
    if text is None:
        raise GrammarError("no call satisfies these `parameters`")
    return text


def _literal(lark: Lark, text: str) -> Symbol:
    return Symbol(lark.terminal(json.dumps(text, ensure_ascii=False)))


def _arguments(lark: Lark, function: dict[str, Any]) -> Symbol:
    schema = function.get("parameters") or {"properties": {}}
    if not isinstance(schema, dict):
        raise GrammarError(f"`parameters` of {function['name']!r} is no JSON object")
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        raise GrammarError(f"`parameters` of {function['name']!r} allows no object")
    name = add_json_schema(lark, json.dumps({**schema, "type": "object"}))
    if name is None:
        raise GrammarError(f"no arguments satisfy the `parameters` of {function['name']!r}")
    return Symbol(name)
