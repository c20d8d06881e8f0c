"""Vocabularies of each call markup, and calls of a reply however it is cut."""

from inferlet import tools
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

STOP = 257  # <|im_end|> of the byte vocabulary
MARKERS = {
    "hermes": "", "xml": "<function=", "glm": "<arg_key>", "mistral": "[TOOL_CALLS]",
    "deepseek": "<｜tool▁call▁begin｜>", "dsml": "｜DSML｜", "kimi": "<|tool_call_begin|>",
    "xtml": '<|open|>call tool="', "gemma": "<|tool_call>", "harmony": "<|constrain|>",
    "llama": "<|python_tag|>", "pythonic": "<|python_start|>",
}  # fmt: skip
VOCABULARIES = {
    name: byte_vocabulary(CHATML + ("{# " + marker + " #}" if marker else ""))
    for name, marker in MARKERS.items()
}


def install(vocabulary):
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)


def decode(pieces):
    """All calls, in order, from pieces of a reply."""
    decoder, found = tools.Decoder(), []
    for piece in [*pieces, *[b""] * 8]:
        event = decoder.feed(list(piece))
        if isinstance(event, tools.Event.Call):
            found.append((event.call.name, event.call.arguments_json))
        else:
            assert event == tools.Event.Start()
    return found


def cut(text, size):
    data = text.encode()
    return [data[at : at + size] for at in range(0, len(data), size)]


def same_for_all_cuts(text):
    """The calls of a reply, after a look at several ways to cut it."""
    found = decode([text.encode()])
    for size in (1, 2, 3, 5):
        assert decode(cut(text, size)) == found
    return found


def hermes(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
