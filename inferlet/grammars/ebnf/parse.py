"""The text of an EBNF grammar becomes a tree for each rule. Errors name line and column."""

import re
from dataclasses import dataclass

from inferlet.errors import GrammarError
from inferlet.grammars import charset
from inferlet.grammars.regex import parse as regex
from inferlet.grammars.regex import tree
from inferlet.grammars.regex.tree import Chars, Node, Repeat, Seq

ROOT = "root"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_HEAD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)(?:[ \t\r\n]|#[^\n]*)*::=")
_DIALECT = regex.Dialect("EBNF grammar", charset.ALL, charset.ASCII_SPACE, False, False)


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule used in another."""

    name: str


Rules = dict[str, Node | Ref]


def parse(text: str) -> Rules:
    """Every rule; GrammarError at the position of the fault."""
    return _Parser(text, _DIALECT).rules()


class _Parser(regex.Parser):
    def __init__(self, text: str, dialect: regex.Dialect) -> None:
        super().__init__(text, dialect)
        self.uses: dict[str, int] = {}  # where each name is first used

    def fail(self, what: str, at: int | None = None) -> None:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        raise GrammarError(
            f"EBNF grammar, line {line}, column {column}: {what}\n\n"
            "hint: rules are `name ::= expression` with literals in quotes, classes, groups, `|` "
            "and `* + ? {n} {n,} {n,m}`"
        )

    def space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()

    def rules(self) -> Rules:
        found: Rules = {}
        self.space()
        while self.at < len(self.text):
            start = self.at
            head = _HEAD.match(self.text, start)
            if head is None:
                self.fail("a rule must begin here: `name ::= …`")
            if head[1] in found:
                self.fail(f"the rule `{head[1]}` is defined twice")
            self.at = head.end()
            found[head[1]] = self.choice(0)
            if self.peek() == ")":
                self.fail("a `)` without its `(`")
            self.space()
        if ROOT not in found:
            self.fail(f"there is no rule `{ROOT}`, which is where texts start", 0)
        for name, at in self.uses.items():
            if name not in found:
                self.fail(f"the rule `{name}` is not defined", at)
        return found

    def choice(self, depth: int) -> Node:
        if depth > regex.MAX_DEPTH:
            self.fail(f"groups are nested deeper than {regex.MAX_DEPTH}")
        found = [self.items(depth)]
        while self.skip("|"):
            found.append(self.items(depth))
        return tree.either(*found)

    def items(self, depth: int) -> Node:
        found: list[Node] = []
        while True:
            self.space()
            is_end = self.at >= len(self.text) or self.peek() in ("|", ")")
            if is_end or _HEAD.match(self.text, self.at):
                return found[0] if len(found) == 1 else Seq(tuple(found))
            found.append(self.item(depth))

    def item(self, depth: int) -> Node:
        node = self.primary(depth)
        counts = self.counts()
        if counts is None:
            return node
        if self.peek() in ("*", "+", "?"):
            self.fail("a repetition of a repetition; put the inner one in a group")
        return Repeat(node, *counts)

    def primary(self, depth: int) -> Node:
        start = self.at
        name = _NAME.match(self.text, start)
        if name:
            self.at = name.end()
            self.uses.setdefault(name[0], start)
            return Ref(name[0])
        character = self.take()
        match character:
            case '"' | "'":
                return self.quoted(character, start)
            case "[":
                return Chars(self.char_class(start))
            case ".":
                return Chars(charset.ALL)
            case "(":
                inner = self.choice(depth + 1)
                if not self.skip(")"):
                    self.fail("a `(` without its `)`", start)
                return inner
        self.fail(f"`{character}` has no meaning here", start)
        raise AssertionError

    def quoted(self, quote: str, start: int) -> Node:
        found: list[Node] = []
        while True:
            if self.at >= len(self.text) or self.peek() == "\n":
                self.fail("a literal without its closing quote", start)
            at = self.at
            character = self.take()
            if character == quote:
                return Seq(tuple(found))
            one = (
                self.escape(at, in_class=True) if character == "\\" else self.literal(character, at)
            )
            if not regex.is_single(one):
                self.fail(f"`\\{self.text[at + 1]}` is no single character", at)
            found.append(Chars(one))
