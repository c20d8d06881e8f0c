"""Markups with JSON behind a head: DeepSeek V3, Kimi, Mistral, Phi-4, Harmony."""

import re
from dataclasses import dataclass

from inferlet.formats.calls.scan import Call, Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import calls_of_array, named


@dataclass(frozen=True)
class Frame:
    """`opener` head `separator` JSON `closer`."""

    opener: str
    separator: str
    closer: str


DEEPSEEK = Frame("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
KIMI = Frame("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
_WORD = re.compile(r"[^\s<`{]*")
_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")
_FENCE = "```"


class Headed(Markup):
    """DeepSeek: `name` sep JSON, or `function` sep name and fenced JSON. Kimi: `functions.name:0`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.openers = (frame.opener,)

    def example(self) -> str:
        frame = self._frame
        head = f"{frame.opener}<function-name>{frame.separator}"
        return f"{head}<args-json-object>{frame.closer}"

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        frame = self._frame
        head, marker = yield from source.until(frame.separator, frame.closer)
        if marker == frame.closer:
            raise Broken
        yield from source.space()
        fenced = yield from source.run(_WORD)  # the name, where `function` is the head
        if fenced:
            yield from source.space()
            yield from source.expect(f"{_FENCE}json")
            yield from source.space()
        known = _KIMI_ID.fullmatch(head.strip())
        text = yield from source.json()
        yield from source.space()
        if fenced:
            yield from source.expect(_FENCE)
            yield from source.space()
        yield from source.expect(frame.closer)
        return _one(named(fenced or (known[1] if known else ""), text))


def _one(call: Call | None) -> Calls:
    if call is None:
        raise Broken
    return (call,)


_NAME = re.compile(r"[^\s\[\]{}]*")
_ARGS, _ID = "[ARGS]", "[CALL_ID]"


class Mistral(Markup):
    """`[TOOL_CALLS]` and an array of calls, or `name[ARGS]{…}`, with or without `[CALL_ID]`."""

    openers = ("[TOOL_CALLS]",)

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        yield from source.space()
        name = yield from source.run(_NAME)
        if not name and (yield from source.peek()) == "[":
            return calls_of_array((yield from source.json()))
        while marker := (yield from source.take(_ARGS, _ID)):
            if marker == _ID:
                yield from source.run(_NAME)
        yield from source.space()
        return _one(named(name, (yield from source.json())))


class Listed(Markup):
    """Phi-4 and Granite: a marker and an array of calls."""

    openers = ("<|tool_call|>", "functools[")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        if opener == self.openers[0]:
            yield from source.space()
            return calls_of_array((yield from source.json()))
        return calls_of_array((yield from source.json("[")))


class Harmony(Markup):
    """gpt-oss: `to=functions.name`, the rest of a header, `<|message|>` and JSON."""

    openers = ("to=functions.",)
    has_drafts = False  # its reasoning has headers of its own
    _name = re.compile(r"[^\s<]*")
    _rest = re.compile(r"[\w\s|>]*")

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        name = yield from source.run(self._name)
        while True:
            yield from source.run(self._rest)
            if (yield from source.take("<|message|>")):
                break
            yield from source.expect("<")
        yield from source.space()
        return _one(named(name, (yield from source.json())))
