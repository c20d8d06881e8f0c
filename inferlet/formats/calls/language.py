"""The grammar of calls: one or more of them, as text for the grammar engine."""

import html
import re
from typing import Any

from inferlet.errors import GrammarError
from inferlet.formats.calls import gemma
from inferlet.formats.calls.forms import Form, forms_of
from inferlet.formats.calls.notations import (
    GemmaValues,
    KeywordArguments,
    TaggedArguments,
    Tags,
)
from inferlet.formats.calls.scan import Markup
from inferlet.formats.calls.types import understood
from inferlet.formats.calls.writer import Writer, quoted
from inferlet.grammars.lark import Lark, Sequence, Symbol
from inferlet.grammars.schema.rules import Rules
from inferlet.runtime.tokenizer import Vocabulary

_PLACES = re.compile(r"(\{(?:name|json name|index|id)\})")
_TERMINALS = {"{index}": "/[0-9]{1,3}/", "{id}": "/[a-zA-Z0-9]{9}/"}


def lark_of(functions: list[dict[str, Any]], markup: Markup, vocabulary: Vocabulary) -> str:
    """`name` is one of the functions', the arguments satisfy its `parameters`."""
    lark = Lark()
    special = {vocabulary.added[number]: number for number in vocabulary.special}
    writer = Writer(lark, special)
    whole: list[Sequence] = []
    arguments: dict[tuple[int, Any], str | None] = {}
    for form in forms_of(markup, vocabulary.template):
        calls = []
        for index, function in enumerate(functions):
            key = index, form.notation
            if key not in arguments:
                arguments[key] = _arguments(writer, form, function)
            before = _fill(writer, form.before, function["name"])
            after = _fill(writer, form.after, function["name"])
            calls.append((*before, Symbol(arguments[key]), *after))
        call = Symbol(lark.rule(*calls))
        more = lark.rule((*writer.literal(form.between), call))
        begin, end = writer.literal(form.begin), writer.literal(form.end)
        whole.append((*begin, call, Symbol(more, 0, None), *end))
    text = lark.text(lark.rule(*whole))
    if text is None:
        raise GrammarError("no call satisfies these `parameters`")
    return text


def _arguments(writer: Writer, form: Form, function: dict[str, Any]) -> str:
    """The rule of a function's arguments."""
    document, expander = understood(_parameters(function))
    everything = ((document.root, True),)
    match form.notation:
        case "json":
            name = Rules(document, writer.lark, expander).add(everything)
        case "gemma":
            name = GemmaValues(document, writer, expander, gemma.QUOTE).add(everything)
        case "python":
            name = KeywordArguments(document, writer.lark, expander).all()
        case Tags() as tags:
            name = TaggedArguments(document, writer, expander, tags).all()
    if name is None or name not in writer.lark.productive():
        raise GrammarError(f"no arguments satisfy the `parameters` of {function['name']!r}")
    return name


def _fill(writer: Writer, text: str, name: str) -> Sequence:
    """The text with its places filled."""
    found: list[Symbol] = []
    literal = ""
    for piece in _PLACES.split(text):
        if piece in _TERMINALS:
            found += writer.literal(literal)
            found.append(Symbol(writer.lark.terminal(_TERMINALS[piece])))
            literal = ""
        elif piece == "{json name}":
            literal += quoted(name)
        elif piece == "{name}":
            if re.fullmatch(r"[\w.:/-]+", name) is None:
                raise GrammarError(f"function {name!r} cannot be named in this model's call markup")
            literal += html.escape(name)
        else:
            literal += piece
    return (*found, *writer.literal(literal))


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, which are an object whatever else it says."""
    schema = function.get("parameters") or {"properties": {}}
    if not isinstance(schema, dict):
        raise GrammarError(f"`parameters` of {function['name']!r} is no JSON object")
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        raise GrammarError(f"`parameters` of {function['name']!r} allows no object")
    return {**schema, "type": "object"}
