"""Where a JSON text ends, found while it comes: an automaton that looks at each character once.

It refuses what can become no JSON as soon as that shows, but for the insides of escapes.
"""

import re

MAX_DEPTH = 400  # far below what the parser of the complete text can take
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR_PART = re.compile(r"[-+.\w]*")
_SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null", re.ASCII
)
_CLOSERS = {"{": "}", "[": "]"}


class JsonScan:
    """Reads one object or array. `feed` says how far it goes, until `is_done` or `is_broken`."""

    def __init__(self) -> None:
        self.is_done = self.is_broken = False
        self._open: list[str] = []
        self._wanted = "open"  # or: value, value or end, key, key or end, colon, comma
        self._is_in_string = self._is_escaped = False
        self._scalar: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """Where the text is read to; a character that breaks it is not part of that."""
        while at < len(text) and not (self.is_done or self.is_broken):
            if self._is_escaped:
                at, self._is_escaped = at + 1, False
            elif self._is_in_string:
                at = self._string(text, at)
            elif self._scalar:
                at = self._number_or_word(text, at)
            else:
                at = _SPACE.match(text, at).end()
                at += at < len(text) and self._mark(text[at])
        return at

    def _string(self, text: str, at: int) -> int:
        at = _PLAIN.match(text, at).end()
        if at == len(text):
            return at
        if text[at] == "\\":
            self._is_escaped = True
        elif text[at] == '"':
            self._is_in_string = False
            self._wanted = "colon" if self._wanted.startswith("key") else "comma"
        else:
            self.is_broken = True
            return at
        return at + 1

    def _number_or_word(self, text: str, at: int) -> int:
        end = _SCALAR_PART.match(text, at).end()
        self._scalar.append(text[at:end])
        if end < len(text):
            self.is_broken = _SCALAR.fullmatch("".join(self._scalar)) is None
            self._scalar, self._wanted = [], "comma"
        return end

    def _mark(self, mark: str) -> bool:
        """One character between strings and scalars; whether it is consumed."""
        wanted = self._wanted
        if wanted.endswith(("comma", "end")) and self._open and mark == _CLOSERS[self._open[-1]]:
            self._open.pop()
            self._wanted = "comma"
            self.is_done = not self._open
        elif wanted == "comma" and mark == ",":
            self._wanted = "key" if self._open[-1] == "{" else "value"
        elif wanted == "colon" and mark == ":":
            self._wanted = "value"
        elif mark == '"' and wanted.startswith(("key", "value")):
            self._is_in_string = True
        elif mark in "{[" and wanted.startswith(("open", "value")) and len(self._open) < MAX_DEPTH:
            self._open.append(mark)
            self._wanted = "key or end" if mark == "{" else "value or end"
        elif wanted.startswith("value") and _SCALAR_PART.fullmatch(mark):
            return self._begin_scalar()
        else:
            self.is_broken = True
            return False
        return True

    def _begin_scalar(self) -> bool:
        self._scalar = [""]  # its first character is read with the others
        return False
