"""Gemma's markup: `<|tool_call>call:name{key:<|"|>text<|"|>,n:1}<tool_call|>`."""

import re

from inferlet.formats.calls.scan import Broken, Call, Found, Markup, More, Schemas, Verdict
from inferlet.formats.calls.values import dumps, loads

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_NAME = re.compile(r"call:([^\s{}<>]+)\s*\{")
_KEY = re.compile(
    rf"\s*(?:{re.escape(QUOTE)}(.*?){re.escape(QUOTE)}|([^{{}}\[\]:,<]+?))\s*:", re.DOTALL
)
_WORD = re.compile(r"[^{}\[\],<]+")
_GAP = re.compile(r"\s*")
MAX_DEPTH = 64


class _Reader:
    """One value after another; ValueError where there is none."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def value(self, depth: int = 0) -> str:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if self.takes(QUOTE):
            return dumps(self.until_quote())
        if self.takes("{"):
            return "{" + ",".join(self.items("}", depth, has_keys=True)) + "}"
        if self.takes("["):
            return "[" + ",".join(self.items("]", depth, has_keys=False)) + "]"
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise ValueError("no value")
        self.at = word.end()
        try:
            loads(word[0])
        except ValueError:
            return dumps(word[0].strip())
        return word[0].strip()

    def items(self, end: str, depth: int, has_keys: bool) -> list[str]:
        found: list[str] = []
        while not self.takes(end):
            if found and not self.takes(","):
                raise ValueError("no comma")
            found.append((self.key() if has_keys else "") + self.value(depth + 1))
        return found

    def key(self) -> str:
        found = _KEY.match(self.text, self.at)
        if found is None:
            raise ValueError("no key")
        self.at = found.end()
        return dumps(found[1] if found[1] is not None else found[2]) + ":"

    def until_quote(self) -> str:
        start, self.at = self.at, self.text.index(QUOTE, self.at) + len(QUOTE)
        return self.text[start : self.at - len(QUOTE)]

    def takes(self, mark: str) -> bool:
        at = _GAP.match(self.text, self.at).end()
        if not self.text.startswith(mark, at):
            return False
        self.at = at + len(mark)
        return True


class Gemma(Markup):
    """A marker within quotes is text."""

    openers = (OPEN,)

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        close = text.find(CLOSE, body)
        while close >= 0:
            inner = text[body:close]
            if inner.count(QUOTE) % 2 == 0:
                call = self._call(inner.strip())
                return Found((call,), close + len(CLOSE)) if call else Broken()
            close = text.find(CLOSE, close + 1)
        return More()

    def _call(self, inner: str) -> Call | None:
        head = _NAME.match(inner)
        if head is None:
            return None
        reader = _Reader(inner, head.end() - 1)
        try:
            arguments = reader.value()
        except ValueError:
            return None
        return Call(head[1], arguments) if reader.at == len(inner) else None
