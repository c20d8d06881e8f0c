"""Calls as each family writes them, and vocabularies in which their markers are tokens."""

import html
import json

from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.inferlet.call_support import MARKERS

# Markers that are tokens of their own in models of the family.
TOKENS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "xml": ("<tool_call>", "</tool_call>"),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "<arg_value>", "</arg_value>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "deepseek": ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    "dsml": ("｜DSML｜",),
    "kimi": ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    "xtml": ("<|open|>", "<|close|>", "<|sep|>"),
    "gemma": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "harmony": ("<|channel|>", "<|constrain|>", "<|message|>"),
    "phi": ("<|tool_call|>",),
}
# What a family has no way to write within a text.
UNWRITABLE = {
    "xml": ("</parameter>", "</function>", "\n<parameter="),
    "glm": ("</arg_value>", "</tool_call>"),
    "dsml": ("</｜DSML｜parameter>",),
    "xtml": ("<|close|>argument<|sep|>",),
    "gemma": ('<|"|>',),
}


def vocabulary_of(family: str) -> Vocabulary:
    """Bytes, and the family's markers as tokens: a reply may spell a marker in both ways."""
    marker = {**MARKERS, "phi": "<|tool_call|>"}[family]
    plain = byte_vocabulary(CHATML)
    plain.tokenizer.add_tokens(list(TOKENS.get(family, ())))
    return Vocabulary(plain.tokenizer, plain.config, CHATML + "{# " + marker + " #}")


def is_writable(family: str, value: object) -> bool:
    match value:
        case str():
            return not any(end in value for end in UNWRITABLE.get(family, ()))
        case dict():
            return all(is_writable(family, item) for item in value.values())
        case list():
            return all(is_writable(family, item) for item in value)
    return True


def tagged(head, end):
    return lambda arguments: "".join(
        head.format(key) + (v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) + end
        for key, v in arguments.items()
    )


def dsml(arguments):
    return "".join(
        f'<｜DSML｜parameter name="{key}" string="{str(isinstance(v, str)).lower()}">'
        f"{v if isinstance(v, str) else json.dumps(v)}</｜DSML｜parameter>\n"
        for key, v in arguments.items()
    )


def xtml(arguments):
    return "".join(
        f'<|open|>argument key="{html.escape(key)}" '
        f'type="{"string" if isinstance(v, str) else "object"}"<|sep|>'
        f"{v if isinstance(v, str) else json.dumps(v)}<|close|>argument<|sep|>"
        for key, v in arguments.items()
    )


def gemma(value):
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            return "{" + ",".join(f"{key}:{gemma(v)}" for key, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(gemma, value)) + "]"
    return json.dumps(value)


def python(arguments):
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def as_json(arguments):
    return json.dumps(arguments, ensure_ascii=False)


qwen_arguments = tagged("<parameter={}>\n", "\n</parameter>\n")
glm_arguments = tagged("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n")
WRITERS = {
    "hermes": lambda a: f'<tool_call>\n{{"name": "f", "arguments": {as_json(a)}}}\n</tool_call>',
    "xml": lambda a: f"<tool_call>\n<function=f>\n{qwen_arguments(a)}</function>\n</tool_call>",
    "glm": lambda a: f"<tool_call>f\n{glm_arguments(a)}</tool_call>",
    "mistral": lambda a: f"[TOOL_CALLS]f[ARGS]{as_json(a)}",
    "deepseek": lambda a: f"<｜tool▁call▁begin｜>f<｜tool▁sep｜>{as_json(a)}<｜tool▁call▁end｜>",
    "dsml": lambda a: f'<｜DSML｜invoke name="f">\n{dsml(a)}</｜DSML｜invoke>',
    "kimi": lambda a: "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    f"{as_json(a)}<|tool_call_end|>",
    "xtml": lambda a: f'<|open|>call tool="f" index="1"<|sep|>{xtml(a)}<|close|>call<|sep|>',
    "gemma": lambda a: f"<|tool_call>call:f{gemma(a)}<tool_call|>",
    "harmony": lambda a: "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    + as_json(a),
    "llama": lambda a: f'{{"name": "f", "parameters": {as_json(a)}}}',
    "pythonic": lambda a: f"[f({python(a)})]",
    "phi": lambda a: f'<|tool_call|>[{{"name": "f", "arguments": {as_json(a)}}}]',
}  # fmt: skip
