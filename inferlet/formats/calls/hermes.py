"""The Hermes form, also Qwen's: `<tool_call>\\n{"name": …, "arguments": {…}}\\n</tool_call>`."""

import json

from inferlet.formats.calls.scan import Broken, Found, Markup, More, Schemas, Verdict
from inferlet.formats.calls.values import call_of, loads

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes(Markup):
    """JSON between markers. A marker in a string of the JSON is text."""

    openers = (OPEN,)

    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        close = text.find(CLOSE, body)
        while close >= 0:
            inner = text[body:close].strip()
            call = call_of(inner)
            if call:
                return Found((call,), close + len(CLOSE))
            if not _is_in_string(inner):
                return Broken()
            close = text.find(CLOSE, close + 1)
        return More()

    @staticmethod
    def frame(name: str) -> tuple[str, str]:
        """What stands before the arguments of a call, and after them."""
        head = f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return head, f"}}\n{CLOSE}"


def _is_in_string(text: str) -> bool:
    try:
        loads(text)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except ValueError:
        pass
    return False
