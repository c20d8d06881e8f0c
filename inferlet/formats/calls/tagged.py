"""Markups with a tag for each argument: Qwen's XML, GLM, DeepSeek's DSML, Kimi K3. Strings have no quotes,
so the declared schemas tell `"12"` from `12`; where there are none, what reads as JSON is JSON."""

import html
import re

from inferlet.formats.calls.scan import Call, Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import joined, named, typed

_STRING = ("string",)


class QwenXml(Markup):
    """`<function=name>\\n<parameter=key>\\nvalue\\n</parameter>\\n</function>`, framed or not."""

    openers = ("<tool_call>", "<function=")
    _word = re.compile(r"[^>\n]*")
    _key = re.compile(r"[\w.-]*")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        if opener == self.openers[0]:
            yield from source.space()
            yield from source.expect("<function=")
        name = (yield from source.run(self._word)).strip().strip("\"'")
        yield from source.expect(">")
        yield from source.space()
        if not name:
            raise Broken
        if (yield from source.peek()) == "{":  # Functionary's arguments are one JSON object
            call = named(name, (yield from source.json()))
            yield from source.space()
            yield from source.expect("</function>")
            if call is None:
                raise Broken
            return (call,)
        found: dict[str, str] = {}
        key = yield from self._next(source)
        while key is not None:
            value, following = yield from self._value(source)
            found[key] = typed(value, types.of(name, key))
            key = (yield from self._next(source)) if following is None else following or None
        return (Call(name, joined(found)),)

    def _next(self, source: Source) -> Reading[str | None]:
        """The key of the next argument; None where the call ends."""
        yield from source.space()
        if (yield from source.expect("<parameter=", "</function>", "</tool_call>"))[1] == "/":
            return None
        key, _ = yield from source.until(">")
        yield from source.take("\n")
        return key.strip()

    def _value(self, source: Source) -> Reading[tuple[str, str | None]]:
        """The value, and the key of the argument that follows it where its end was forgotten:
        that is found before the next part of the frame. An empty key: the call ends."""
        parts: list[str] = []
        while True:
            text, mark = yield from source.until("</parameter>", "</function>", "\n<parameter=")
            parts += [text, mark]
            if mark[0] == "\n":
                key = yield from source.run(self._key)
                parts.append(key)
                if key and (yield from source.take(">\n")):
                    return "".join(parts[:-2]), key
                continue
            parts.append((yield from source.space()))
            ends = ("</tool_call>",)
            if mark == "</parameter>":
                ends = ("<parameter=", "</function>", "</tool_call>")
            if end := (yield from source.take(*ends)):
                value = "".join(parts[:-2]).removesuffix("\n")
                if end[1] == "/":
                    return value, ""
                key, _ = yield from source.until(">")
                yield from source.take("\n")
                return value, key.strip()


class Glm(Markup):
    """`<tool_call>name\\n<arg_key>k</arg_key>\\n<arg_value>v</arg_value>\\n</tool_call>`."""

    openers = ("<tool_call>",)
    _name = re.compile(r"[^\s<]*")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        yield from source.space()
        name = yield from source.run(self._name)
        if not name:
            raise Broken
        found: dict[str, str] = {}
        while True:
            yield from source.space()
            if (yield from source.expect("<arg_key>", "</tool_call>")) == "</tool_call>":
                return (Call(name, joined(found)),)
            key, _ = yield from source.until("</arg_key>")
            yield from source.space()
            yield from source.expect("<arg_value>")
            value, is_last = yield from self._value(source)
            found[key.strip()] = typed(value, types.of(name, key.strip()))
            if is_last:
                return (Call(name, joined(found)),)

    @staticmethod
    def _value(source: Source) -> Reading[tuple[str, bool]]:
        """A value, and whether its end was forgotten before the end of the call. That is so at a
        `</tool_call>` unless the value itself has opened one."""
        parts, depth = [], 0
        while True:
            text, mark = yield from source.until("</arg_value>", "</tool_call>", "<tool_call>")
            parts += [text, mark]
            if mark == "</arg_value>":
                return "".join(parts[:-1]), False
            if mark == "</tool_call>" and depth == 0:
                return "".join(parts[:-1]).removesuffix("\n"), True
            depth += 1 if mark == "<tool_call>" else -1


class Dsml(Markup):
    """`<｜DSML｜invoke name="f">` and parameters that say whether they are strings."""

    openers = ('<｜DSML｜invoke name="', '<｜DSML｜ invoke name="')
    _parts = (
        "<｜DSML｜parameter ", "<｜DSML｜ parameter ", "</｜DSML｜invoke>", "</｜DSML｜ invoke>",
    )  # fmt: skip
    _ends = ("</｜DSML｜parameter>", "</｜DSML｜ parameter>")
    _attribute = re.compile(r'[^"<>]*')

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        name = yield from source.run(self._attribute)
        yield from source.expect('"')
        yield from source.space()
        if (yield from source.expect(">", "/>")) == "/>":
            return (Call(name, "{}"),)
        found: dict[str, str] = {}
        while True:
            yield from source.space()
            if (yield from source.expect(*self._parts))[1] == "/":
                return (Call(name, joined(found)),)
            yield from source.expect('name="')
            key = yield from source.run(self._attribute)
            kind = yield from source.expect('">', '" string="true">', '" string="false">')
            value, _ = yield from source.until(*self._ends)
            found[key] = typed(value, _STRING if "true" in kind else ())


class Xtml(Markup):
    """Kimi K3: `<|open|>call tool="f" index="1"<|sep|>` and arguments that state their types."""

    openers = ('<|open|>call tool="',)
    _parts = ("<|open|>argument ", "<|close|>call<|sep|>")
    _value_end = "<|close|>argument<|sep|>"
    _attribute = re.compile(r'[^"<>]*')
    _more = re.compile(r"[^<>]*")
    _type = re.compile(r"\w*")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        name = html.unescape((yield from source.run(self._attribute)))
        yield from source.run(self._more)
        yield from source.expect("<|sep|>")
        found: dict[str, str] = {}
        yield from source.space()
        part = yield from source.expect(*self._parts)
        while part == self._parts[0]:
            yield from source.expect('key="')
            key = html.unescape((yield from source.run(self._attribute)))
            kind = ""
            if (yield from source.expect('"<|sep|>', '" type="'))[-1] == '"':
                kind = yield from source.run(self._type)
                yield from source.expect('"<|sep|>')
            value, part = yield from self._value(source)
            found[key] = typed(value, _STRING if kind == "string" else ())
        return (Call(name, joined(found)),)

    def _value(self, source: Source) -> Reading[tuple[str, str]]:
        """A value and the part behind it. An end that no part follows is text."""
        parts: list[str] = []
        while True:
            text, mark = yield from source.until(self._value_end)
            parts += [text, mark, (yield from source.space())]
            if part := (yield from source.take(*self._parts)):
                return "".join(parts[:-2]), part
