"""Gemma's markup: `<|tool_call>call:name{key:<|"|>text<|"|>,n:1}<tool_call|>`."""

import re

from inferlet.formats.calls.scan import Call, Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import dumps, loads

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
MAX_DEPTH = 64


class Gemma(Markup):
    """A marker within quotes is text."""

    openers = (OPEN,)
    _name = re.compile(r"[^\s{}<>]*")
    _key = re.compile(r"[^{}\[\]:,<]*")
    _word = re.compile(r"[^{}\[\],<]*")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        yield from source.space()
        yield from source.expect("call:")
        name = yield from source.run(self._name)
        yield from source.space()
        yield from source.expect("{")
        if not name:
            raise Broken
        arguments = yield from self._items(source, "}", 1)
        yield from source.space()
        yield from source.expect(CLOSE)
        return (Call(name, arguments),)

    def _items(self, source: Source, end: str, depth: int) -> Reading[str]:
        """The rest of an object or an array."""
        if depth > MAX_DEPTH:
            raise Broken
        found: list[str] = []
        while True:
            yield from source.space()
            if (yield from source.take(end)):
                break
            if found:
                yield from source.expect(",")
            key = (yield from self._named(source)) if end == "}" else ""
            found.append(key + (yield from self._value(source, depth)))
        return ("{" if end == "}" else "[") + ",".join(found) + end

    def _named(self, source: Source) -> Reading[str]:
        yield from source.space()
        if (yield from source.take(QUOTE)):
            key, _ = yield from source.until(QUOTE)
            yield from source.space()
        else:
            key = (yield from source.run(self._key)).rstrip()
            if not key:
                raise Broken
        yield from source.expect(":")
        return dumps(key) + ":"

    def _value(self, source: Source, depth: int) -> Reading[str]:
        yield from source.space()
        if (yield from source.take(QUOTE)):
            return dumps((yield from source.until(QUOTE))[0])
        if mark := (yield from source.take("{", "[")):
            return (yield from self._items(source, "}" if mark == "{" else "]", depth + 1))
        word = (yield from source.run(self._word)).strip()
        if not word:
            raise Broken
        try:
            loads(word)
        except ValueError:
            return dumps(word)
        return word
