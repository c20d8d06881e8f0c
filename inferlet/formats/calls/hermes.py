"""The Hermes form, also Qwen's: `<tool_call>\\n{"name": …, "arguments": {…}}\\n</tool_call>`."""

from inferlet.formats.calls.scan import Calls, Markup
from inferlet.formats.calls.source import Broken, Reading, Source
from inferlet.formats.calls.types import Types
from inferlet.formats.calls.values import call_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes(Markup):
    """JSON between markers. A marker in a string of the JSON is text."""

    openers = (OPEN,)

    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        yield from source.space()
        call = call_of((yield from source.json()))
        yield from source.space()
        yield from source.expect(CLOSE)
        if call is None:
            raise Broken
        return (call,)
