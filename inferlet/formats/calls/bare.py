"""Markups without a marker, as Llama has them: a JSON object, or a Python list of calls."""

import ast
import re

from inferlet.formats.calls.scan import Call, Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import call_of, dumps, joined


class BareJson(Markup):
    """`{"name": "f", "parameters": {…}}`. Any other object in a reply is plain text."""

    openers = ("{",)
    answer_role = "ipython"

    def example(self) -> str:
        return '{"name": <function-name>, "parameters": <args-json-object>}'

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        yield from source.space()
        if (yield from source.peek()) != '"':
            raise Broken
        text = yield from source.json(opener)
        call = call_of(text, ("parameters", "arguments"))
        has_arguments = '"parameters"' in text or '"arguments"' in text
        return (call,) if call and has_arguments else ()


_NAME = re.compile(r"[\w.]*")
_PLAIN = re.compile(r"[^\[\](){}'\"]*")
_IN_QUOTES = {quote: re.compile(rf"[^{quote}\\\n]*") for quote in "'\""}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


class Pythonic(Markup):
    """`[f(a=1), g()]`: keyword arguments that are literals."""

    openers = ("[",)
    answer_role = "ipython"

    def example(self) -> str:
        return "[<function-name>(<argument>=<value>, …)]"

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        parts = [opener, (yield from source.space())]
        name = yield from source.run(_NAME)
        parts += [name, (yield from source.space())]
        if not name or (yield from source.peek()) != "(":
            raise Broken
        parts.append((yield from _rest_of_list(source)))
        try:
            return _calls("".join(parts))
        except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
            raise Broken from None


def _rest_of_list(source: Source) -> Reading[str]:
    parts, expected = [], ["]"]
    while expected:
        parts.append((yield from source.run(_PLAIN)))
        mark = yield from source.peek()
        if mark in _CLOSERS:
            expected.append(_CLOSERS[mark])
        elif mark not in "'\"" and mark != expected.pop():
            raise Broken
        source.at += 1
        parts.append(mark)
        if mark in "'\"":
            parts.append((yield from _rest_of_string(source, mark)))
    return "".join(parts)


def _rest_of_string(source: Source, quote: str) -> Reading[str]:
    parts = []
    while True:
        parts.append((yield from source.run(_IN_QUOTES[quote])))
        mark = yield from source.peek()
        if mark == "\n":
            raise Broken
        source.at += 1
        parts.append(mark)
        if mark == quote:
            return "".join(parts)
        parts.append((yield from source.peek()))  # behind a backslash
        source.at += 1


_WORDS = {"true": True, "false": False, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def _calls(text: str) -> Calls:
    lines = text.encode().splitlines(keepends=True)
    return tuple(_call(node, lines) for node in ast.parse(text, mode="eval").body.elts)


def _call(node: ast.expr, lines: list[bytes]) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call with keywords")
    members = {keyword.arg: _json_of(keyword.value, lines) for keyword in node.keywords}
    if None in members:
        raise ValueError("`**` in a call")
    return Call(ast.unparse(node.func), joined(members))


def _json_of(node: ast.expr, lines: list[bytes]) -> str:
    """JSON text of a literal. Numbers keep their spelling."""
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return "[" + ",".join(_json_of(item, lines) for item in items) + "]"
        case ast.Dict(keys=keys, values=values):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise ValueError("a key that is no string")
            made = (_json_of(value, lines) for value in values)
            return joined(dict(zip(names, made, strict=True)))
        case ast.Constant(value=int() | float()) | ast.UnaryOp() if node.lineno == node.end_lineno:
            text = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
            if _NUMBER.fullmatch(text):
                return text
        case ast.Name(id=word) if word in _WORDS:
            return dumps(_WORDS[word])
    return dumps(ast.literal_eval(node))
