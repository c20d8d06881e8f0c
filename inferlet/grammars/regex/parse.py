"""Patterns of two dialects become trees.

Plain: what `Grammar.from_regex` documents. Ecma: the `pattern` of JSON Schema. Anything that a
dialect does not have is refused with its position.
"""

import re
from dataclasses import dataclass

from inferlet.errors import GrammarError
from inferlet.grammars import charset
from inferlet.grammars.charset import CharSet
from inferlet.grammars.regex import tree
from inferlet.grammars.regex.tree import Anchor, Chars, Look, Node, Repeat, Seq

MAX_DEPTH = 120
MAX_REPEAT = 100_000
_COUNTS = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_UP_TO = re.compile(r"\{,[0-9]+\}")
_MARKS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True)
class Dialect:
    """What differs between the two."""

    name: str
    dot: CharSet
    space: CharSet
    has_lookahead: bool
    has_odd_classes: bool  # `[]` and `[^]`, and escapes of letters that mean the letters


PLAIN = Dialect("regex", charset.NOT_NEWLINE, charset.ASCII_SPACE, False, False)
ECMA = Dialect("pattern", charset.NOT_LINE_END, charset.UNICODE_SPACE, True, True)


def parse(pattern: str, dialect: Dialect) -> Node:
    """The tree of `pattern`; GrammarError with the position of the fault."""
    parser = Parser(pattern, dialect)
    node = parser.alternatives(0)
    if parser.at < len(pattern):
        parser.fail("a `)` without its `(`")
    return node


class Parser:
    """Recursive descent over one pattern; EBNF borrows its classes, escapes and counts."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self.at = 0

    def fail(self, what: str, at: int | None = None) -> None:
        at = self.at if at is None else at
        raise GrammarError(
            f"{self.dialect.name} {shorten(self.text)}, position {at}: {what}\n\n"
            "hint: literals, classes, groups, `|`, `* + ? {n} {n,} {n,m}` and `.` are supported"
        )

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def take(self) -> str:
        if self.at >= len(self.text):
            self.fail("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def skip(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def alternatives(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(f"groups are nested deeper than {MAX_DEPTH}")
        found = [self.sequence(depth)]
        while self.skip("|"):
            found.append(self.sequence(depth))
        return tree.either(*found)

    def sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            items.append(self.repeated(depth))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def repeated(self, depth: int) -> Node:
        start = self.at
        node = self.atom(depth)
        counts = self.counts()
        if counts is None:
            return node
        if isinstance(node, Anchor | Look):
            self.fail("nothing to repeat", start)
        self.skip("?")  # lazy forms mean the same
        if self.peek() in ("*", "+") or self.peek() == "?" or _COUNTS.match(self.text, self.at):
            self.fail("a repetition of a repetition; put the inner one in a group")
        return Repeat(node, *counts)

    def counts(self) -> tuple[int, int | None] | None:
        mark = self.peek()
        if mark in _MARKS:
            self.at += 1
            return _MARKS[mark]
        found = _COUNTS.match(self.text, self.at) if mark == "{" else None
        if not found:
            if (
                mark == "{"
                and not self.dialect.has_odd_classes
                and _UP_TO.match(self.text, self.at)
            ):
                self.fail("`{,m}`; write `{0,m}`")
            return None
        low = int(found[1])
        high = low if found[2] is None else int(found[3]) if found[3] else None
        if high is not None and high < low:
            self.fail(f"`{found[0]}` asks for at least {low} and at most {high}")
        if max(low, high or 0) > MAX_REPEAT:
            self.fail(f"a count over {MAX_REPEAT}")
        self.at = found.end()
        return low, high

    def atom(self, depth: int) -> Node:
        start = self.at
        character = self.take()
        match character:
            case "(":
                return self.group(start, depth)
            case "[":
                return Chars(self.char_class(start))
            case ".":
                return Chars(self.dialect.dot)
            case "^" | "$":
                return Anchor(character == "^", start)
            case "\\":
                return Chars(self.escape(start, in_class=False))
            case "*" | "+" | "?":
                self.fail(f"nothing to repeat before `{character}`", start)
            case "{" if _COUNTS.match(self.text, start):
                self.fail("nothing to repeat before `{`", start)
        return Chars(self.literal(character, start))

    def literal(self, character: str, at: int) -> CharSet:
        found = charset.chars(character)
        if not found:
            self.fail("half a surrogate pair is no character", at)
        return found

    def group(self, start: int, depth: int) -> Node:
        look = None
        if self.skip("?"):
            if self.peek() in ("=", "!"):
                if not self.dialect.has_lookahead:
                    self.fail("lookahead is not supported", start)
                look = self.take() == "!"
            elif self.peek(2) in ("<=", "<!"):
                self.fail("lookbehind is not supported", start)
            elif not self.skip(":"):
                named = re.compile(r"P?<[A-Za-z_]\w*>").match(self.text, self.at)
                if not named:
                    self.fail(f"unknown group `(?{self.peek()}`", start)
                self.at = named.end()
        inner = self.alternatives(depth + 1)
        if not self.skip(")"):
            self.fail("a `(` without its `)`", start)
        return inner if look is None else Look(inner, look, start)

    def char_class(self, start: int) -> CharSet:
        is_negated = self.skip("^")
        found: list[CharSet] = []
        is_first = True
        while True:
            if self.at >= len(self.text):
                self.fail("a `[` without its `]`", start)
            if self.peek() == "]" and (not is_first or self.dialect.has_odd_classes):
                break
            if self.peek() == "]":
                self.fail("an empty class; write `\\]` for the character", start)
            found.append(self.class_item())
            is_first = False
        self.at += 1
        whole = charset.union(*found)
        return charset.complement(whole) if is_negated else whole

    def class_item(self) -> CharSet:
        start = self.at
        low = self.class_char()
        if self.peek() != "-" or self.peek(2) in ("-", "-]"):
            return low
        self.at += 1
        high = self.class_char()
        if not (is_single(low) and is_single(high)):
            if self.dialect.has_odd_classes:  # `[\w-.]`: the `-` is itself
                return charset.union(low, charset.chars("-"), high)
            self.fail("a range needs a single character at both ends", start)
        if low[0][0] > high[0][0]:
            self.fail(f"the range `{self.text[start : self.at]}` is empty", start)
        return charset.of((low[0][0], high[0][0]))

    def class_char(self) -> CharSet:
        start = self.at
        character = self.take()
        if character == "\\":
            return self.escape(start, in_class=True)
        if self.text.startswith("[:", start):
            self.fail("named classes such as `[:alpha:]` are not supported", start)
        return self.literal(character, start)

    def escape(self, start: int, in_class: bool) -> CharSet:
        character = self.take()
        sets = {"d": charset.DIGIT, "w": charset.WORD, "s": self.dialect.space}
        if character.lower() in sets:
            found = sets[character.lower()]
            return found if character.islower() else charset.complement(found)
        if character == "b" and in_class:
            return charset.chars("\b")
        if character in "xu" or (character == "U" and not self.dialect.has_odd_classes):
            return self.hexadecimal(character, start)
        if character == "0" and not self.peek().isdigit():
            return charset.chars("\0")
        if character in "123456789" or (character == "k" and self.peek() == "<"):
            self.fail("backreferences are not supported", start)
        if character in _CONTROLS and character != "0":
            return charset.chars(_CONTROLS[character])
        if character == "c" and self.peek().isascii() and self.peek().isalpha():
            return charset.of((ord(self.take()) % 32,) * 2)
        if character in "pP":
            return self.unicode_property(character, start)
        if character in "bB":
            self.fail(f"the word boundary `\\{character}` is not supported", start)
        if character.isalnum() and character.isascii():
            self.fail(f"unknown escape `\\{character}`", start)
        return self.literal(character, start)

    def hexadecimal(self, kind: str, start: int) -> CharSet:
        braced = re.compile(r"\{([0-9A-Fa-f]{1,6})\}").match(self.text, self.at)
        plain = re.compile(f"[0-9A-Fa-f]{{{_HEX_LENGTHS[kind]}}}").match(self.text, self.at)
        found = braced or plain
        if not found:
            self.fail(f"`\\{kind}` without its hexadecimal digits", start)
        self.at = found.end()
        point = int(braced[1] if braced else found[0], 16)
        if 0xD800 <= point < 0xDC00:  # the first half of a pair
            rest = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})").match(self.text, self.at)
            if rest:
                self.at = rest.end()
                point = 0x10000 + ((point - 0xD800) << 10) + int(rest[1], 16) - 0xDC00
        if point > charset.LAST or 0xD800 <= point <= 0xDFFF:
            self.fail(f"U+{point:04X} is no character", start)
        return charset.of((point, point))

    def unicode_property(self, kind: str, start: int) -> CharSet:
        name = re.compile(r"\{(\^?)([^}]*)\}|([A-Z])").match(self.text, self.at)
        found = charset.category(name[2] or name[3] or "") if name else None
        if found is None:
            self.fail(f"unknown character property after `\\{kind}`", start)
        self.at = name.end()
        is_negated = (kind == "P") != bool(name[1])
        return charset.complement(found) if is_negated else found


def is_single(found: CharSet) -> bool:
    return len(found) == 1 and found[0][0] == found[0][1]


def shorten(text: str, length: int = 60) -> str:
    """For messages: in backticks, the middle left out when long."""
    if len(text) > length:
        text = f"{text[: length // 2]}…{text[-length // 3 :]}"
    return f"`{text}`"
