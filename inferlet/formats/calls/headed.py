"""Markups with a name, then a JSON object: DeepSeek V3, Kimi, Mistral, Harmony."""

import re
from dataclasses import dataclass

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
from inferlet.formats.calls.values import call_of_value, end_of_json, loads, named


@dataclass(frozen=True)
class Frame:
    """`opener` head `separator` JSON `closer`."""

    opener: str
    separator: str
    closer: str


DEEPSEEK = Frame("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
KIMI = Frame("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
_FENCED = re.compile(r"\s*(\S+)\s*```json\s*(.*?)\s*```\s*", re.DOTALL)
_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


class Headed(Markup):
    """DeepSeek: `name` sep JSON, or `function` sep name and fenced JSON. Kimi: `functions.name:0`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.openers = (frame.opener,)

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        middle = text.find(self._frame.separator, body)
        close = text.find(self._frame.closer, body)
        if 0 <= close < middle or (middle < 0 <= close):
            return Broken()
        while close >= 0:
            inner = text[middle + len(self._frame.separator) : close]
            call = self._call(text[body:middle].strip(), inner)
            if call:
                return Found((call,), close + len(self._frame.closer))
            if "{" not in inner or end_of_json(inner, inner.index("{")) is not None:
                return Broken()
            close = text.find(self._frame.closer, close + 1)
        return More()

    def _call(self, head: str, body: str) -> Call | None:
        fenced = _FENCED.fullmatch(body)
        if fenced:
            return named(fenced[1], fenced[2])
        name = _KIMI_ID.fullmatch(head)
        return named(name[1], body) if name else None


_NAME = re.compile(r"[^\s\[\]{}]*")
_ARGS, _ID = "[ARGS]", "[CALL_ID]"


class Mistral(Markup):
    """`[TOOL_CALLS]` and an array of calls, or `name[ARGS]{…}`, with or without `[CALL_ID]`."""

    openers = ("[TOOL_CALLS]",)
    enders = "}]"

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        start = skip_space(text, body)
        if start == len(text):
            return More()
        if text[start] == "[" and not isinstance(begins(text, start, (_ARGS, _ID)), str):
            return self._array(text, start)
        return self._named(text, start)

    def _array(self, text: str, start: int) -> Verdict:
        end = end_of_json(text, start)
        if end is None:
            return More()
        try:
            values = loads(text[start:end])
        except ValueError:
            return Broken()
        if not all(isinstance(value, dict) for value in values):
            return Broken()
        calls, at = [], start + 1
        for value in values:
            at = text.index("{", at)
            stop = end_of_json(text, at)
            calls.append(call_of_value(value, text[at:stop], ("arguments", "parameters")))
            at = stop or end
        return Found(tuple(call for call in calls if call), end)

    def _named(self, text: str, start: int) -> Verdict:
        head = _NAME.match(text, start)
        at = head.end()
        while at < len(text) and text[at] == "[":
            marker = begins(text, at, (_ARGS, _ID))
            if not isinstance(marker, str):
                return More() if marker else Broken()
            at += len(marker)
            if marker == _ID:
                at = _NAME.match(text, at).end()
        at = skip_space(text, at)
        if at == len(text):
            return More()
        if text[at] != "{" or not head[0]:
            return Broken()
        end = end_of_json(text, at)
        if end is None:
            return More()
        call = named(head[0], text[at:end])
        return Found((call,), end) if call else Broken()


class Harmony(Markup):
    """gpt-oss: `to=functions.name`, the rest of a header, `<|message|>` and JSON."""

    openers = ("to=functions.",)
    enders = "}"
    _head = re.compile(r"([^\s<]+)[\w\s<|>]*?<\|message\|>\s*")
    _no_header = re.compile(r"[^\s<]*(?=[\s<])[\w\s<|>]*[^\w\s<|>]")

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        head = self._head.match(text, body)
        if head is None:
            return Broken() if self._no_header.match(text, body) else More()
        if head.end() == len(text):
            return More()
        if text[head.end()] != "{":
            return Broken()
        end = end_of_json(text, head.end())
        if end is None:
            return More()
        call = named(head[1], text[head.end() : end])
        return Found((call,), end) if call else Broken()
