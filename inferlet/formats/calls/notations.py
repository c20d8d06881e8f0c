"""Arguments in notations other than JSON, as rules of a grammar: what a schema means is known to
`inferlet.grammars.schema`, and how a value is written is known here."""

import html
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferlet.errors import GrammarError
from inferlet.formats.calls.writer import Writer, quoted, without
from inferlet.grammars import charset, engine
from inferlet.grammars.lark import Lark, Sequence, Symbol
from inferlet.grammars.regex import spell, tree
from inferlet.grammars.regex.spell import Spelling
from inferlet.grammars.schema import objects
from inferlet.grammars.schema.document import Document
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.expand import Expander
from inferlet.grammars.schema.rules import Rules
from inferlet.grammars.schema.scalars import SPACE
from inferlet.grammars.schema.shapes import (
    Array,
    Boolean,
    Need,
    Null,
    Number,
    Object,
    Shape,
    String,
)

# The terminals that the rules of objects and arrays have for their brackets.
_BRACKETS = {
    rf"/\{{{SPACE}/": "{", rf"/{SPACE}\}}/": "}", rf"/\{{{SPACE}\}}/": "{}",
    rf"/\[{SPACE}/": "[", rf"/{SPACE}\]/": "]", rf"/\[{SPACE}\]/": "[]",
}  # fmt: skip
_QUOTES = ('"', r"\x{22}")  # in the bodies of terminals of JSON strings
_WORD = charset.union(charset.of((0x30, 0x39), (0x41, 0x5A)), charset.of((0x61, 0x7A)))
_SIMPLE_NAME = tree.Repeat(tree.Chars(charset.union(_WORD, charset.chars("_.-"))), 1, None)
_TYPES: dict[type[Shape], str] = {
    Null: "null", Boolean: "boolean", Number: "number", Array: "array", Object: "object",
}  # fmt: skip


class _Changed:
    """A grammar whose terminals are written in another way, or not at all."""

    def __init__(self, lark: Lark, change: Callable[[str], str]) -> None:
        self._lark, self._change = lark, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lark, name)

    def terminal(self, body: str, *uses: str) -> str:
        body = self._change(body)
        return self._lark.terminal(body, *uses) if body else self._lark.raw_rule('""')


def _without_brackets(lark: Lark) -> Lark:
    return _Changed(lark, lambda body: "" if body in _BRACKETS else body)


def _guarded(lark: Lark, banned: tuple[str, ...]) -> Lark:
    """No JSON string holds one of the texts."""
    guard = " & ".join(spell.lark(without(text), Spelling.TEXT) for text in banned)

    def change(body: str) -> str:
        return f"({body}) & {guard}" if any(quote in body for quote in _QUOTES) else body

    return _Changed(lark, change)


class _Values(Rules):
    """Rules of values; unions of shapes may be asked for too."""

    def union(self, shapes: list[Shape]) -> str:
        name = self.lark.new_name()
        self._todo.append((name, shapes))
        return name

    def finish(self) -> None:
        """Writes the rules that were asked for."""
        while self._todo:
            rule, shapes = self._todo.pop()
            self.lark.rules[rule] = self._alternatives(shapes)


class PythonValues(_Values):
    """Literals of Python. Strings are written as in JSON, but for what Python reads otherwise."""

    def __init__(self, document: Document, lark: Lark, expander: Expander) -> None:
        super().__init__(document, _guarded(lark, ("\\/", "\\ud", "\\uD")), expander)

    def _scalars(self, shapes: list[Shape]) -> str:
        words = ["None" for shape in shapes if isinstance(shape, Null)]
        booleans = [shape for shape in shapes if isinstance(shape, Boolean)]
        words += [str(value) for shape in booleans for value in sorted(shape.values)]
        found = [(Symbol(self.lark.terminal(quoted(word))),) for word in words]
        others = [shape for shape in shapes if not isinstance(shape, Null | Boolean)]
        if others:
            found.append((Symbol(super()._scalars(others)),))
        return self.lark.rule(*found)


class GemmaValues(_Values):
    """Gemma's notation: keys without quotes, strings between markers of their own, no space."""

    def __init__(self, document: Document, writer: Writer, expander: Expander, quote: str) -> None:
        marks = {body: quoted(mark) for body, mark in _BRACKETS.items()}
        lark = _Changed(writer.lark, lambda body: marks.get(body, body))
        super().__init__(document, lark, expander)
        self._writer, self._quote = writer, quote
        self.comma = lark.terminal(quoted(","))

    def key_of(self, name: str) -> str:
        if re.fullmatch(r"[\w.-]+", name):
            return self.lark.terminal(quoted(f"{name}:"))
        return self._string(tree.literal(name), f"{self._quote}:")

    def key(self, node: tree.Node) -> str:
        name = _text_of(node)
        return self._string(node, f"{self._quote}:") if name is None else self.key_of(name)

    def _scalars(self, shapes: list[Shape]) -> str:
        strings = [tree_of(shape) for shape in shapes if isinstance(shape, String)]
        found = [(Symbol(self._string(node, self._quote)),) for node in strings]
        others = [shape for shape in shapes if not isinstance(shape, String)]
        if others:
            found.append((Symbol(super()._scalars(others)),))
        return self.lark.rule(*found)

    def _string(self, node: tree.Node, end: str) -> str:
        text = self._writer.text(node, end, (self._quote,))
        if text is None:
            return self.lark.rule()
        return self.lark.rule((*self._writer.literal(self._quote), *text))


@dataclass(frozen=True)
class Tags:
    """How a markup writes one argument: `head` and `end` around its value."""

    head: str  # with `{key}`
    end: str
    banned: tuple[str, ...]  # what a text must not hold, for it would be taken for its end
    string: str = ""  # behind the head, before a text
    other: str = ""  # behind the head, before JSON; with `{type}`
    is_html: bool = False


class TaggedArguments(Rules):
    """The members of the object of all arguments, each in its tags."""

    def __init__(self, document: Document, writer: Writer, expander: Expander, tags: Tags) -> None:
        super().__init__(document, _without_brackets(writer.lark), expander)
        self._writer, self._tags = writer, tags
        self._json = _Values(document, _guarded(writer.lark, tags.banned), expander)
        self.comma = writer.lark.raw_rule('""')

    def all(self) -> str:
        found = _members(self)
        self._json.finish()
        return found

    def key_of(self, name: str) -> str:
        is_clear = name == name.strip() and not re.search(r'[<>"\n]|^$', name)
        if not is_clear and not self._tags.is_html:
            raise GrammarError(f"argument {name!r} cannot be named in this model's call markup")
        name = html.escape(name) if self._tags.is_html else name
        return self._writer.name(self._writer.literal(self._tags.head.replace("{key}", name)))

    def key(self, node: tree.Node) -> str:
        if (known := _text_of(node)) is not None:
            return self.key_of(known)
        before, after = self._tags.head.split("{key}")
        simple = tree.Both((_SIMPLE_NAME, node))
        if engine.is_void(simple):
            return self.lark.rule()
        name = Symbol(self._writer.lark.terminal(spell.lark(simple, Spelling.TEXT)))
        literal = self._writer.literal
        return self.lark.rule((*literal(before), name, *literal(after)))

    def symbol(self, need: Need) -> str | None:
        """A value with what stands before and after it."""
        if need not in self._names:
            self._names[need] = self._value(self.expander.union_of(need))
        return self._names[need]

    def _value(self, shapes: list[Shape]) -> str | None:
        tags, literal = self._tags, self._writer.literal
        strings = [tree_of(shape) for shape in shapes if isinstance(shape, String)]
        others = [shape for shape in shapes if not isinstance(shape, String)]
        found: list[Sequence] = []
        for node in strings:
            if others and not tags.string:  # a text that could be JSON would be taken for it
                node = tree.Both((node, _UNLIKE_JSON))
            text = self._writer.text(node, tags.end, tags.banned)
            if text is not None:
                found.append((*literal(tags.string), *text))
        for kind, group in _by_type(others, "{type}" in tags.other).items():
            before = literal(tags.other.replace("{type}", kind))
            value = Symbol(self._json.union(group))
            found.append((*before, value, *literal(tags.end)))
        return self.lark.rule(*found) if found else None


def _by_type(shapes: list[Shape], is_apart: bool) -> dict[str, list[Shape]]:
    groups: dict[str, list[Shape]] = {}
    for shape in shapes:
        groups.setdefault(_TYPES[type(shape)] if is_apart else "", []).append(shape)
    return groups


_STARTS_OF_JSON = charset.chars(' \t\r\n{["-0123456789tfn')
_UNLIKE_JSON = tree.Alt(
    (tree.EMPTY, tree.Seq((tree.Chars(charset.minus(charset.ALL, _STARTS_OF_JSON)), tree.ANY_TEXT)))
)


class KeywordArguments(Rules):
    """The members of the object of all arguments as keywords: `a=1, b=2`."""

    def __init__(self, document: Document, lark: Lark, expander: Expander) -> None:
        super().__init__(document, _without_brackets(lark), expander)
        self._values = PythonValues(document, lark, expander)
        self.comma = lark.terminal("/, ?/")

    def all(self) -> str:
        found = _members(self)
        self._values.finish()
        return found

    def key_of(self, name: str) -> str:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise GrammarError(f"argument {name!r} cannot be named in this model's call markup")
        return self.lark.terminal(quoted(f"{name}="))

    def key(self, node: tree.Node) -> str:
        if (known := _text_of(node)) is not None:
            return self.key_of(known)
        letters = charset.union(charset.of((0x41, 0x5A)), charset.of((0x61, 0x7A)))
        more = tree.Repeat(tree.Chars(charset.union(_WORD, charset.chars("_"))), 0, None)
        words = tree.either(*map(tree.literal, keyword.kwlist))
        simple = tree.Both((tree.Seq((tree.Chars(letters), more)), node, tree.Not(words)))
        if engine.is_void(simple):
            return self.lark.rule()
        return self.lark.terminal(f'{spell.lark(simple, Spelling.TEXT)} "="')

    def symbol(self, need: Need) -> str | None:
        return self._values.symbol(need)


def _members(rules: Rules) -> str:
    """All that an object's members may be, without its brackets."""
    shapes = rules.expander.union_of(((rules.document.root, True),))
    found = [s for shape in shapes if isinstance(shape, Object)
             for s in objects.alternatives(rules, shape)]  # fmt: skip
    return rules.lark.rule(*found)


def _text_of(node: tree.Node) -> str | None:
    """The only text of a tree that is a literal."""
    items = node.items if isinstance(node, tree.Seq) else ()
    is_literal = items and all(
        isinstance(item, tree.Chars) and len(item.set) == 1 and item.set[0][0] == item.set[0][1]
        for item in items
    )
    return "".join(chr(item.set[0][0]) for item in items) if is_literal else None
