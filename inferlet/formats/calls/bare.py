"""Markups without a marker, as Llama has them: a JSON object, or a Python list of calls."""

import ast
import re

from inferlet.formats.calls.scan import Broken, Call, Found, Markup, More, Schemas, Verdict
from inferlet.formats.calls.values import call_of, dumps, end_of_json

_START = re.compile(r'\{\s*(?:"|\Z)')


class BareJson(Markup):
    """`{"name": "f", "parameters": {…}}`. Any other object in a reply is plain text."""

    openers = ("{",)
    enders = "}"

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        if _START.match(text, at) is None:
            return Broken()
        end = end_of_json(text, at)
        if end is None:
            return More()
        call = call_of(text[at:end], ("parameters", "arguments"))
        has_arguments = '"parameters"' in text[at:end] or '"arguments"' in text[at:end]
        return Found((call,) if call and has_arguments else (), end)


_FIRST_CALL = re.compile(r"\[\s*(?:[A-Za-z_][\w.]*\s*(\(|\Z)|\Z)")
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[\](){}'\"]", re.DOTALL)


class Pythonic(Markup):
    """`[f(a=1), g()]`: keyword arguments that are literals."""

    openers = ("[",)
    enders = "]"

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        if _FIRST_CALL.match(text, at) is None:
            return Broken()
        end = _end_of_list(text, at)
        if end is None:
            return More()
        try:
            calls = tuple(map(_call, ast.parse(text[at:end], mode="eval").body.elts))
        except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
            return Broken()
        return Found(calls, end)


def _end_of_list(text: str, at: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in ("'", '"'):
            return None
        if token[0] in "[({":
            depth += 1
        elif token[0] in "])}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


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
