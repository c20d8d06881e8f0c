"""JSON texts in a reply: where one ends, and what it says as compact text."""

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from inferlet.formats.calls.scan import Call

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}"]', re.DOTALL)
_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


def end_of_json(text: str, at: int) -> int | None:
    """Where the object or array that opens at `at` is closed; None while it is open."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        match token[0]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if depth <= 0:
                    return token.end()
            case '"':
                return None  # a string that has no end yet
    return None


def loads(text: str) -> Any:
    """Strict JSON; ValueError for what is none, and for `NaN` and its like."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _integer(text: str) -> int | float:
    """Python refuses to read very long integers; here only the text of one matters."""
    return int(text) if len(text) < 1000 else float(text)


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def compact(text: str) -> str:
    """Without the space between elements. Numbers and strings stay as they were generated."""
    return _SPACE.sub(lambda found: found[1] or "", text)


def call_of(text: str, keys: tuple[str, ...] = ("arguments", "parameters")) -> Call | None:
    """The call that a JSON object states as name and arguments; None when it states none."""
    try:
        value = loads(text)
    except ValueError:
        return None
    return call_of_value(value, text, keys)


def call_of_value(value: Any, text: str, keys: tuple[str, ...]) -> Call | None:
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    key = next((key for key in keys if key in value), None)
    arguments = value[key] if key else {}
    if not isinstance(name, str) or not name:
        return None
    if isinstance(arguments, str):  # JSON in a JSON string
        return named(name, arguments)
    if not isinstance(arguments, dict):
        return None
    return Call(name, (key and _member(text, key)) or dumps(arguments))


def calls_of_array(text: str) -> tuple[Call, ...]:
    """The calls that a JSON array of objects states; others of its items are skipped."""
    found, at = [], text.index("[") + 1
    while (at := text.find("{", at)) >= 0:
        end = end_of_json(text, at)
        found.append(call_of(text[at:end]))
        at = end
    return tuple(call for call in found if call)


def named(name: str, text: str) -> Call | None:
    """A call from a name and the JSON text of its arguments."""
    try:
        value = loads(text)
    except ValueError:
        return None
    return Call(name, compact(text.strip())) if name and isinstance(value, dict) else None


def _member(text: str, key: str) -> str | None:
    """The last object of this key in the outer object, as it was generated."""
    found, depth, last = None, 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            if depth == 1 and last == f'"{key}"' and token[0] == "{":
                end = end_of_json(text, token.start())
                found = text[token.start() : end]
            depth += 1
            last = ""
        elif token[0] in "}]":
            depth -= 1
        elif depth == 1:
            last = token[0]
    return compact(found) if found else None


_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_KINDS = {dict: "object", list: "array", str: "string", type(None): "null", bool: "boolean"}


def typed(text: str, kinds: Collection[str]) -> str:
    """JSON text of an argument that was written without quotes around strings; `kinds`: the types
    that it may have, none if that is not known."""
    if kinds and "string" not in kinds:
        text = _PYTHON_WORDS.get(text.strip(), text)
    try:
        value = loads(text)
    except ValueError:
        return dumps(_python_literal(text) if kinds and "string" not in kinds else text)
    # Quotes stand for themselves: a string is not quoted where it is a value of its own.
    kind = _KINDS.get(type(value), "number")
    is_integral = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    is_legal = not kinds or kind in kinds or ("integer" in kinds and is_integral)
    if kind == "string" or ("string" in kinds and not is_legal):
        return dumps(text)
    return compact(text.strip())


def _python_literal(text: str) -> Any:
    """The list or dict that some models write as Python does; else the text."""
    try:
        value = ast.literal_eval(text.strip())
        dumps(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text
    return value if isinstance(value, list | dict) else text


def joined(members: Mapping[str, str]) -> str:
    """An object from the JSON texts of its members."""
    return "{" + ",".join(f"{dumps(key)}:{value}" for key, value in members.items()) + "}"
