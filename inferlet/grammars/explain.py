"""What a grammar expects next, in words: for error messages and for people who debug a grammar."""

import json
from typing import Any

from inferlet.errors import GrammarError
from inferlet.grammars.schema.document import Document, Place, load

_RANGES = (
    ("a digit", b"0123456789"),
    ("a small letter", b"abcdefghijklmnopqrstuvwxyz"),
    ("a capital letter", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
)
_SPACE = frozenset(b" \t\r\n")
_MANY = 60  # different bytes, from where on it is «any character but …»


def explain(text: bytes, following: set[int], is_complete: bool, kind: str, source: str) -> str:
    """`following`: the bytes that may come next; `text`: what is there already."""
    parts = []
    if following:
        parts.append(_bytes_in_words(following))
    if is_complete:
        parts.append("the end" if following else "nothing but the end: the text is complete")
    said = " or ".join(parts) or "nothing: no token continues the text"
    if kind == "JSON schema":
        missing = _missing(text, source)
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            word, verb = ("property", "is") if len(missing) == 1 else ("properties", "are")
            said += f"; the required {word} {names} {verb} still missing"
    return said


def _bytes_in_words(following: set[int]) -> str:
    printable = {byte for byte in following if 0x20 < byte < 0x7F}
    if len(printable) > _MANY:
        missing = sorted(set(range(0x21, 0x7F)) - printable)
        but = ", ".join(f"`{chr(byte)}`" for byte in missing[:6])
        return f"any character but {but}" if 0 < len(missing) <= 6 else "any character"
    words = []
    for name, members in _RANGES:
        if printable.issuperset(members):
            words.append(name)
            printable -= set(members)
    words += [f"`{chr(byte)}`" for byte in sorted(printable)]
    if following & _SPACE:
        words.append("white space")
    if any(byte >= 0x80 for byte in following):
        words.append("a character outside of ASCII")
    if any(byte < 0x20 and byte not in _SPACE for byte in following):
        words.append("a control character")
    if len(words) == 1:
        return (
            words[0] if words[0].startswith("a ") else f"a {words[0]}".replace("a white", "white")
        )
    return "one of " + ", ".join(words[:-1]) + " or " + words[-1]


# ---- required members of the object that is open


def _missing(text: bytes, source: str) -> list[str]:
    """Names that the innermost open object must still have, as far as the schema is simple."""
    path = _open_path(text.decode("utf-8", "replace"))
    if path is None:
        return []
    try:
        document = Document(load(source))
        places = [document.root]
        for step, _ in path[:-1]:
            places = [inner for place in places for inner in _step(document, place, step)]
        return _required(document, places, path[-1][1])
    except GrammarError:
        return []


def _required(document: Document, places: list[Place], names: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for place in _expanded(document, places):
        required = place.value.get("required", [])
        found.update((name, None) for name in required if isinstance(name, str))
    return [name for name in found if name not in names]


def _expanded(document: Document, places: list[Place]) -> list[Place]:
    """The schemas with those that they refer to or hold under `allOf`."""
    found: dict[int, Place] = {}
    todo = [place for place in places if isinstance(place.value, dict)]
    while todo:
        place = todo.pop()
        if id(place) in found:
            continue
        found[id(place)] = place
        inner = [document.resolve(place, "$ref")] if "$ref" in place.value else []
        inner += [document.at(item, place.path, place) for item in place.value.get("allOf", [])]
        todo += [item for item in inner if isinstance(item.value, dict)]
    return list(found.values())


def _step(document: Document, place: Place, step: str | int) -> list[Place]:
    found: list[Any] = []
    for one in _expanded(document, [place]):
        if isinstance(step, str):
            found.append((one, one.value.get("properties", {}).get(step)))
        else:
            prefix = one.value.get("prefixItems", [])
            rest = one.value.get("items")
            found.append((one, prefix[step] if step < len(prefix) else rest))
    return [document.at(v, one.path, one) for one, v in found if isinstance(v, dict)]


def _open_path(text: str) -> list[tuple[str | int, list[str]]] | None:
    """For each open container from the outside in: the key or index in it that is being written,
    and the names that it has. None when the innermost is no object."""
    stack: list[list[Any]] = []  # [is_object, current key or index, names, whether a key is due]
    at = 0
    while at < len(text):
        character = text[at]
        if character in "{[":
            stack.append([character == "{", 0, [], True])
        elif character in "}]":
            stack.pop()
        elif character == "," and stack:
            stack[-1][3] = True
            if not stack[-1][0]:
                stack[-1][1] += 1
        elif character == '"':
            end = _string_end(text, at)
            if end is None:
                break
            if stack and stack[-1][0] and stack[-1][3]:
                stack[-1][1] = json.loads(text[at:end], strict=False)
                stack[-1][2].append(stack[-1][1])
                stack[-1][3] = False
            at = end - 1
        at += 1
    if not stack or not stack[-1][0]:
        return None
    return [(key, names) for _, key, names, _ in stack]


def _string_end(text: str, start: int) -> int | None:
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == '"':
            return at + 1
        at += 1
    return None
