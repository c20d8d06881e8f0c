"""Turns that declare tools and carry their answers, in the model's native form.

Where the template knows tools, its own renderings are cut; a silent ChatML has the Hermes form.
"""

import json
from typing import Any

from inferlet.errors import InferletError
from inferlet.formats import chatml
from inferlet.formats.template import Message, Template
from inferlet.runtime.tokenizer import Vocabulary

DECLARATION = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
_USER: Message = {"role": "user", "content": "u"}
_PROBE = {"type": "function", "function": {"name": "probe", "description": "", "parameters": {}}}


class Toolbox:
    """The turns of contract section 4 for one model of the ChatML family."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode
        self._start = vocabulary.named_token("bos_token") or ""
        self._template = Template(vocabulary)
        plain = self._template.render([_USER])
        self._is_native = self._template.render([_USER], tools=[_PROBE]) != plain

    def equip(self, tools: list[dict[str, Any]]) -> list[int]:
        if not self._is_native:
            lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
            return self._encode(chatml.turn("system", DECLARATION.format(tools=lines)))
        whole = self._template.render([_USER], tools=tools)
        user = chatml.turn("user", _USER["content"])
        if not whole.endswith(user):
            raise InferletError("this model's chat template declares tools within the user's turn")
        return self._encode(whole.removesuffix(user).removeprefix(self._start))

    def answer(self, name: str, text: str) -> list[int]:
        if not self._is_native:
            body = f"<tool_response>\n{text}\n</tool_response>"
            return self._encode(chatml.turn("user", body))
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": {}}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        history = [_USER, asked]
        answer = {"role": "tool", "name": name, "tool_call_id": "call_0", "content": text}
        before = self._template.render(history, tools=[_PROBE])
        whole = self._template.render([*history, answer], tools=[_PROBE])
        if not whole.startswith(before):
            raise InferletError("this model's chat template renders old turns anew with answers")
        return self._encode(whole[len(before) :])
