"""Markups without a marker, as Llama has them: a JSON object, or a Python list of calls."""

import ast
import re

from inferlet.formats.calls.scan import Call, Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import call_of, dumps


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
            return tuple(map(_call, ast.parse("".join(parts), mode="eval").body.elts))
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


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call with keywords")
    members = {keyword.arg: _literal(keyword.value) for keyword in node.keywords}
    if None in members:
        raise ValueError("`**` in a call")
    return Call(ast.unparse(node.func), dumps(members))


class _JsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _literal(node: ast.expr) -> object:
    return ast.literal_eval(_JsonWords().visit(node))
