"""Markups with a tag for each argument: Qwen's XML, GLM, DeepSeek's DSML, Kimi K3. Strings have no quotes,
so the declared schemas tell `"12"` from `12`; where there are none, what reads as JSON is JSON."""

import html
import re

from inferlet.formats.calls.scan import (
    Broken,
    Call,
    Found,
    Markup,
    More,
    Schemas,
    Verdict,
    begins,
    skip_space,
)
from inferlet.formats.calls.values import joined, typed


def _schema_of(schemas: Schemas, name: str, key: str) -> dict | None:
    properties = schemas.get(name, {}).get("properties")
    found = properties.get(key) if isinstance(properties, dict) else None
    return found if isinstance(found, dict) else None


class _Tagged(Markup):
    """A head, arguments in tags, and an end. All three are patterns of the family."""

    parts: tuple[str, ...]  # what may stand between two arguments; the last ones end the call
    num_argument_parts = 1
    argument: re.Pattern[str]  # key
    value_end: re.Pattern[str]

    def members(self, text: str, at: int, name: str, schemas: Schemas) -> Found | More | Broken:
        """The arguments from here to the end of the call."""
        found: dict[str, str] = {}
        while True:
            at = skip_space(text, at)
            part = begins(text, at, self.parts)
            if not isinstance(part, str):
                return More() if part else Broken()
            if part not in self.parts[: self.num_argument_parts]:
                return Found((Call(name, joined(found)),), at + len(part))
            head = self.argument.match(text, at)
            end = head and self.value_end.search(text, head.end())
            if not head or not end:
                return More()
            key, value = self.key(head), text[head.end() : end.start()]
            found[key] = self.value(value, head, _schema_of(schemas, name, key))
            at = end.end()

    def key(self, head: re.Match[str]) -> str:
        return head[1].strip()

    def value(self, text: str, head: re.Match[str], schema: dict | None) -> str:
        return typed(text, schema)


class QwenXml(_Tagged):
    """`<function=name>\\n<parameter=key>\\nvalue\\n</parameter>\\n</function>`, framed or not."""

    openers = ("<tool_call>", "<function=")
    parts = ("<parameter=", "</function>", "</tool_call>")
    argument = re.compile(r"<parameter=([^>]*)>\n?")
    # An end that was forgotten is found before the next part of the frame.
    value_end = re.compile(
        r"\n?</parameter>\s*(?=<parameter=|</function>|</tool_call>)"
        r"|\n?(?=</function>\s*</tool_call>)|\n(?=<parameter=[\w.-]+>\n)"
    )
    _head = re.compile(r"<function=([^>\n]*)>")

    @staticmethod
    def frame(name: str) -> tuple[str, str]:
        """What stands before the arguments of a call, and after them."""
        return f"<tool_call>\n<function={name}>\n", "</function>\n</tool_call>"

    @staticmethod
    def tag(key: str) -> tuple[str, str]:
        """What stands before and after one argument."""
        return f"<parameter={key}>\n", "\n</parameter>\n"

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        start = at
        if text[at:body] == "<tool_call>":
            start = skip_space(text, body)
            marker = begins(text, start, ("<function=",))
            if not isinstance(marker, str):
                return More() if marker else Broken()
        head = self._head.match(text, start)
        if head is None:
            is_open = "\n" not in text[start:] and ">" not in text[start:]
            return More() if is_open else Broken()
        name = head[1].strip().strip("\"'")
        return self.members(text, head.end(), name, schemas) if name else Broken()


class Glm(_Tagged):
    """`<tool_call>name\\n<arg_key>k</arg_key>\\n<arg_value>v</arg_value>\\n</tool_call>`."""

    openers = ("<tool_call>",)
    parts = ("<arg_key>", "</tool_call>")
    argument = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>", re.DOTALL)
    value_end = re.compile(r"</arg_value>|\n?(?=</tool_call>)")
    _head = re.compile(r"\s*([^\s<]+)\s*(?=<)")

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        head = self._head.match(text, body)
        if head is None:
            rest = text[body:].lstrip()
            is_open = "<" not in rest and len(rest.split()) <= 1
            return More() if is_open else Broken()
        return self.members(text, head.end(), head[1], schemas)


class Dsml(_Tagged):
    """`<｜DSML｜invoke name="f">` and parameters that say whether they are strings."""

    openers = ('<｜DSML｜invoke name="', '<｜DSML｜ invoke name="')
    parts = (
        "<｜DSML｜parameter ", "<｜DSML｜ parameter ", "</｜DSML｜invoke>", "</｜DSML｜ invoke>",
    )  # fmt: skip
    num_argument_parts = 2
    argument = re.compile(r'<｜DSML｜ ?parameter name="([^"]*)"(?: string="(true|false)")?>')
    value_end = re.compile(r"</｜DSML｜ ?parameter>")
    _head = re.compile(r'([^"<>]*)"\s*(/?)>')

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        head = self._head.match(text, body)
        if head is None:
            return Broken() if ">" in text[body:] else More()
        if head[2]:
            return Found((Call(head[1], "{}"),), head.end())
        return self.members(text, head.end(), head[1], schemas)

    def value(self, text: str, head: re.Match[str], schema: dict | None) -> str:
        return typed(text, {"type": "string"} if head[2] == "true" else None)


class Xtml(_Tagged):
    """Kimi K3: `<|open|>call tool="f" index="1"<|sep|>` and arguments that state their types."""

    openers = ('<|open|>call tool="',)
    parts = ("<|open|>argument ", "<|close|>call<|sep|>")
    argument = re.compile(r'<\|open\|>argument key="([^"]*)"(?: type="(\w+)")?<\|sep\|>')
    value_end = re.compile(
        r"<\|close\|>argument<\|sep\|>\s*(?=<\|open\|>argument |<\|close\|>call<\|sep\|>)"
    )
    _head = re.compile(r'([^"<>]*)"[^<>]*<\|sep\|>')

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        head = self._head.match(text, body)
        if head is None:
            return Broken() if "<|sep|>" in text[body:] else More()
        return self.members(text, head.end(), html.unescape(head[1]), schemas)

    def key(self, head: re.Match[str]) -> str:
        return html.unescape(head[1])

    def value(self, text: str, head: re.Match[str], schema: dict | None) -> str:
        return typed(text, {"type": "string"} if head[2] == "string" else None)
