r"""Trees written out: for the engine (as text, or as the inside of a JSON string), and for `re`.

Inside of a JSON string a character has several spellings (`é`, `\u00e9`). What a grammar allows is
spelt raw, or with the shortest escape where raw is illegal; characters outside of ASCII with their
`\u` escape too. What a grammar forbids is meant in every spelling.
"""

import enum
import functools
import string

from inferlet.grammars import charset
from inferlet.grammars.charset import CharSet
from inferlet.grammars.regex.tree import Alt, Both, Chars, Node, Not, Repeat, Seq

_MUST_ESCAPE = charset.union(charset.of((0, 0x1F)), charset.chars('"\\'))
_NAMED = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "/": "/"}
_ASCII = charset.of((0, 0x7F))
_ASTRAL = charset.of((0x10000, charset.LAST))
# Small letters are written by number: each is a new state of the engine's reader of grammars, and
# takes it about 3 us; digits and capitals are few states.
# One character in any spelling; halves of surrogate pairs are no characters.
_HEX = r"[0-9A-F\x61-\x66]"
JSON_ANY = (
    r'(?:[^"\\\x00-\x1F]|\\(?:["\x2F\\\x62\x66\x6E\x72\x74]'
    + r"|\x75(?:[0-9A-CEF\x61-\x63\x65\x66]" + _HEX
    + r"{3}|[D\x64](?:[0-7]" + _HEX + r"{2}|[89AB\x61\x62]" + _HEX
    + r"{2}\\\x75[D\x64][C-F\x63-\x66]" + _HEX + "{2}))))"
)  # fmt: skip
# Characters that are themselves in the engine's regexes, also between slashes.
PLAIN = frozenset(string.ascii_uppercase + string.digits + " _-:,;=@!%&'<>~`\"")
MANY_RANGES = 64  # above, allowed characters are spelt raw only


class Spelling(enum.Enum):
    TEXT = enum.auto()
    JSON = enum.auto()
    JSON_EVERY = enum.auto()


def lark(node: Node, spelling: Spelling) -> str:
    """A terminal's body for the engine."""
    match node:
        case Both(items):
            return "(" + " & ".join(lark(item, spelling) for item in items) + ")"
        case Not(item):
            every = Spelling.TEXT if spelling is Spelling.TEXT else Spelling.JSON_EVERY
            return f"(~{lark(item, every)})"
        case Seq(items) if _has_logic(node):
            return "(" + " ".join(lark(item, spelling) for item in items) + ")"
        case Alt(items) if _has_logic(node):
            return "(" + " | ".join(lark(item, spelling) for item in items) + ")"
        case Repeat(item, low, high) if _has_logic(node):
            return f"({lark(item, spelling)}){_counts(low, high)}"
    return f"/{regex(node, spelling) or '(?:)'}/"  # `//` would start a comment


def _has_logic(node: Node) -> bool:
    match node:
        case Both() | Not():
            return True
        case Seq(items) | Alt(items):
            return any(_has_logic(item) for item in items)
        case Repeat(item, _, _):
            return _has_logic(item)
    return False


def regex(node: Node, spelling: Spelling) -> str:
    """The engine's regex; no `/` is in it."""
    match node:
        case Chars(found):
            return class_of(found) if spelling is Spelling.TEXT else _json_char(found, spelling)
        case Seq(items):
            if spelling is Spelling.TEXT:
                return "".join([class_of(item.set) if type(item) is Chars
                                else _grouped(item, spelling) for item in items])  # fmt: skip
            return "".join(_grouped(item, spelling) for item in items)
        case Alt(()):
            return r"[^\x{0}-\x{10FFFF}]"
        case Alt(items):
            return "|".join(regex(item, spelling) for item in items)
        case Repeat(item, low, high):
            return f"(?:{regex(item, spelling)}){_counts(low, high)}"
    raise AssertionError(node)


def _grouped(node: Node, spelling: Spelling) -> str:
    inner = regex(node, spelling)
    return f"(?:{inner})" if isinstance(node, Alt) else inner


def _counts(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    return f"{{{low},{'' if high is None else high}}}"


def by_number(character: str) -> str:
    return f"\\x{ord(character):02X}" if character.isascii() else f"\\x{{{ord(character):X}}}"


@functools.lru_cache(maxsize=2048)
def class_of(found: CharSet) -> str:
    r"""`[\x{61}-\x{7A}]`; one letter, digit or space is itself."""
    if not found:
        return r"[^\x{0}-\x{10FFFF}]"
    if len(found) == 1 and found[0][0] == found[0][1]:
        character = chr(found[0][0])
        return character if character in PLAIN else by_number(character)
    ranges = (
        f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}"
        for low, high in found
    )
    return f"[{''.join(ranges)}]"


@functools.lru_cache(maxsize=4096)
def _json_char(found: CharSet, spelling: Spelling) -> str:
    if found == charset.ALL:
        return JSON_ANY
    every = spelling is Spelling.JSON_EVERY
    raw = charset.minus(found, _MUST_ESCAPE)
    options = [class_of(raw)] if raw else []
    named = "".join(
        letter for char, letter in _NAMED.items() if charset.contains(found, char)
        if every or char != "/"
    )  # fmt: skip
    if named:
        options.append("\\x{5C}" + class_of(charset.chars(named)))
    escaped = charset.minus(found, charset.minus(_ASCII, charset.of((0, 0x1F))))
    if len(escaped) > MANY_RANGES:
        escaped = charset.intersect(escaped, _ASCII)
    options += unicode_escapes(found if every else escaped)
    if not options:
        return r"[^\x{0}-\x{10FFFF}]"
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def unicode_escapes(found: CharSet) -> list[str]:
    r"""Regexes of the `\uXXXX` spellings, pairs of surrogates included."""
    short = [part for low, high in charset.minus(found, _ASTRAL) for part in hex_range(low, high)]
    options = [f"\\x{{5C}}u(?:{'|'.join(short)})"] if short else []
    pairs = []
    for low, high in charset.intersect(found, _ASTRAL):
        pairs += _pair_range(low - 0x10000, high - 0x10000)
    return options + pairs


def _pair_range(low: int, high: int) -> list[str]:
    """`low` and `high` are offsets over U+FFFF: ten bits for each half."""

    def pair(first: tuple[int, int], second: tuple[int, int]) -> str:
        one = "|".join(hex_range(0xD800 + first[0], 0xD800 + first[1]))
        two = "|".join(hex_range(0xDC00 + second[0], 0xDC00 + second[1]))
        return f"\\x{{5C}}u(?:{one})\\x{{5C}}u(?:{two})"

    (top, bottom), (last_top, last_bottom) = divmod(low, 1024), divmod(high, 1024)
    if top == last_top:
        return [pair((top, top), (bottom, last_bottom))]
    found = []
    if bottom:
        found.append(pair((top, top), (bottom, 1023)))
        top += 1
    if last_bottom != 1023:
        found.append(pair((last_top, last_top), (0, last_bottom)))
        last_top -= 1
    if top <= last_top:
        found.append(pair((top, last_top), (0, 1023)))
    return found


def hex_range(low: int, high: int, digits: int = 4) -> list[str]:
    """Regexes of `digits` hexadecimal digits that together are the range, in either case."""
    if digits == 1:
        return [_hex_digits(low, high)]
    size = 16 ** (digits - 1)
    first, last = low // size, high // size
    if first == last:
        rest = hex_range(low % size, high % size, digits - 1)
        return [_hex_digits(first, first) + part for part in rest]
    found = []
    if low % size:
        found += [
            _hex_digits(first, first) + r for r in hex_range(low % size, size - 1, digits - 1)
        ]
        first += 1
    if high % size != size - 1:
        found += [_hex_digits(last, last) + part for part in hex_range(0, high % size, digits - 1)]
        last -= 1
    if first <= last:
        found.append(_hex_digits(first, last) + "[0-9A-Fa-f]" * (digits - 1))
    return found


def _hex_digits(low: int, high: int) -> str:
    digits = "".join(f"{digit:x}" for digit in range(low, high + 1))
    both = "".join(dict.fromkeys(digits + digits.upper()))
    return both if len(both) == 1 else f"[{both}]"


def python(node: Node) -> str:
    """For `re.fullmatch` with DOTALL. `Both` and `Not` always reach to the end of the text."""
    match node:
        case Chars(found):
            if not found:
                return r"(?!)"
            ranges = (f"\\U{low:08X}-\\U{high:08X}" for low, high in found)
            return f"[{''.join(ranges)}]"
        case Seq(items):
            return "".join(f"(?:{python(item)})" for item in items)
        case Alt(()):
            return r"(?!)"
        case Alt(items):
            return "|".join(python(item) for item in items)
        case Repeat(item, low, high):
            return f"(?:{python(item)}){_counts(low, high)}"
        case Both(items):
            return "".join(f"(?=(?:{python(item)})\\Z)" for item in items) + "(?s:.*)"
        case Not(item):
            return f"(?!(?:{python(item)})\\Z)(?s:.*)"
    raise AssertionError(node)
