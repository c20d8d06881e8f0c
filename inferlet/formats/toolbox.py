"""Turns that declare tools and carry their answers, in the model's native form.

Where the template knows tools, its own renderings are cut. A silent template has a declaration in
a system turn, and answers between markers in a user's turn; for ChatML that is the Hermes form.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from jinja2.exceptions import TemplateError

from inferlet.errors import InferletError, with_hint
from inferlet.formats.calls.hermes import Hermes
from inferlet.formats.calls.scan import Markup
from inferlet.formats.template import Message, Template
from inferlet.formats.turns import Turns
from inferlet.runtime.tokenizer import Vocabulary

DECLARATION = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

"""
HERMES = """\
For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
OTHERS = "For each function call, return its name and its arguments in this form:\n"
ANSWER = "<tool_response>\n{text}\n</tool_response>"

_USER: Message = {"role": "user", "content": "\u2042u\u2042"}
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
# What some templates write behind a call already, though it belongs to the answer.
_ANSWER_OPENERS = ("<|tool_response>",)


class Toolbox:
    """The turns of contract section 4 for one model."""

    def __init__(self, vocabulary: Vocabulary, turns: Turns, markup: Markup | None) -> None:
        self._vocabulary, self._turns, self._markup = vocabulary, turns, markup
        self._template = Template(vocabulary)
        bos = vocabulary.token_id(vocabulary.named_token("bos_token"))
        self._bos = [] if bos is None else [bos]

    def equip(self, tools: list[dict[str, Any]]) -> list[int]:
        fault = ""
        options: list[dict[str, Any]] = [{}]
        if "tools_in_user_message" in self._template.options():
            options.append({"tools_in_user_message": False})
        for given, option in itertools.product((tools, list(map(_completed, tools))), options):
            try:
                plain = self._template.render([_USER], cue=True, **option)
                whole = self._template.render([_USER], cue=True, tools=given, **option)
            except _TEMPLATE_FAULTS:
                continue
            if whole == plain:
                continue
            fault = "it declares them within the user's turn"
            ids = self._vocabulary.encode(whole)
            end = self._turns.user(_USER["content"]) + self._turns.cue()
            if ids[len(ids) - len(end) :] == end:
                return self._without_bos(ids[: len(ids) - len(end)])
        if fault:
            hint = "declare the tools in `chat.system`, in words of your own"
            text = f"this model's chat template has no turn for tools: {fault}"
            raise InferletError(with_hint(text, hint))
        return self._declaration(tools) if self._markup else []

    def _declaration(self, tools: list[dict[str, Any]]) -> list[int]:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        how = HERMES if isinstance(self._markup, Hermes) else OTHERS + self._markup.example()
        return self._without_bos(self._turns.system(DECLARATION.format(tools=lines) + how))

    def answer(self, name: str, text: str) -> list[int]:
        for history, message in self._exchanges(name, text):
            found = self._cut_answer(history, message, name)
            if found is not None:
                return found
        return self._turns.user(ANSWER.format(text=text))

    def _exchanges(self, name: str, text: str) -> Iterator[tuple[list[Message], Message]]:
        """A call and its answer, as templates of several kinds want to have them."""
        source = self._vocabulary.template
        knows_tools = any(word in source for word in ("'tool'", '"tool"')) or (
            "tools" in self._template.options()
        )
        role = "tool" if knows_tools else self._markup and self._markup.answer_role
        for_kimi, others = f"functions.{name}:0", "call00000"
        numbers = (for_kimi, others) if "tool_call_argument_begin" in source else (others,)
        for number, content, arguments in itertools.product(numbers, ("", None), ({}, "{}")):
            call = {"name": name, "arguments": arguments}
            call = {"id": number, "type": "function", "function": call}
            asked = {"role": "assistant", "content": content, "tool_calls": [call]}
            answer = {"role": role, "name": name, "tool_call_id": number, "content": text}
            if role is not None:
                yield [_USER, asked], answer

    def _cut_answer(self, history: list[Message], answer: Message, name: str) -> list[int] | None:
        """The ids of the answer's turn; None when the template has no such turn."""
        tools = [{"type": "function", "function": _completed({"name": name})}]
        try:
            before = self._template.render(history, tools=tools)
            wholes = [
                self._template.render([*history, answer], cue=cue, tools=tools)
                for cue in (True, False)
            ]
        except _TEMPLATE_FAULTS:
            return None
        cue = self._turns.cue()
        for whole, end in zip(wholes, (cue, []), strict=True):
            start = _end_of_call(before, whole, name)
            ids = self._after(whole[:start], whole)
            if start and len(ids) > len(end) and ids[len(ids) - len(end) :] == end:
                return ids[: len(ids) - len(end)]
        return None

    def _after(self, head: str, whole: str) -> list[int]:
        """The ids of a text behind its head."""
        before, ids = self._vocabulary.encode(head), self._vocabulary.encode(whole)
        if ids[: len(before)] == before:
            return ids[len(before) :]
        return self._vocabulary.encode(whole[len(head) :])

    def _without_bos(self, ids: list[int]) -> list[int]:
        return ids[1:] if self._bos and ids[:1] == self._bos else ids


def _completed(tool: dict[str, Any]) -> dict[str, Any]:
    """With all that templates may read."""
    if "function" in tool:
        return {**tool, "function": _completed(tool["function"])}
    parameters = {"type": "object", "properties": {}, **tool.get("parameters", {})}
    return {"description": "", **tool, "parameters": parameters}


def _end_of_call(before: str, whole: str, name: str) -> int:
    """Where the turn of the call ends in `whole`; 0 when it is not found. Templates may drop
    empty reasoning from it once an answer follows, so its end from the name on must do."""
    if whole.startswith(before):
        end = len(before)
    else:
        tail = before[before.rfind(name) :]
        at = whole.find(tail)
        end = at + len(tail) if at >= 0 and name in before else 0
    for opener in _ANSWER_OPENERS:
        if before.endswith(opener) and end:
            end -= len(opener)
    return end
