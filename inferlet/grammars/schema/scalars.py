"""Terminals of scalars: the JSON spellings of strings, numbers and constants."""

from inferlet.grammars.regex import spell, tree
from inferlet.grammars.regex.spell import Spelling
from inferlet.grammars.schema import numbers
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.shapes import Boolean, Null, Number, Shape, String

SPACE = r"[ \x09\x0A\x0D]{0,64}"
_QUOTE = '"'
_ANY_STRING = f"{_QUOTE}{spell.JSON_ANY}*{_QUOTE}"


def string(node: tree.Node) -> str:
    """A terminal's body: the JSON string whose value is in the tree."""
    if node == tree.ANY_TEXT:
        return f"/{_ANY_STRING}/"
    if tree.has_any(node, (tree.Both, tree.Not)):
        body = spell.lark(tree.Both((node, tree.ANY_TEXT)), Spelling.JSON)
        return f"/{_QUOTE}/ {body} /{_QUOTE}/"
    inner = spell.regex(node, Spelling.JSON)
    inner = f"(?:{inner})" if isinstance(node, tree.Alt) else inner
    return f"/{_QUOTE}{inner}{_QUOTE}/"


def constant(value: str) -> str:
    """A regex: the JSON string of this value."""
    return f"{_QUOTE}{_spelt(value)}{_QUOTE}"


def terminal(shape: Shape) -> str:
    match shape:
        case Null():
            return f"/{_spelt('null')}/"
        case Boolean(values):
            texts = [str(value).lower() for value in sorted(values, reverse=True)]
            return f"/{'|'.join(map(_spelt, texts))}/"
        case String(values=values) if values is not None:
            table = _ESCAPED if sum(map(len, values)) < MANY_LETTERS else _ESCAPED_LONG
            texts = [_spelt(value, table) for value in values]
            return f"/{_QUOTE}(?:{'|'.join(texts)}){_QUOTE}/"
        case String():
            return string(tree_of(shape))
        case Number(values=values) if values is not None:
            texts = [text for value in values for text in numbers.spellings(value)]
            return f"/{'|'.join(texts)}/".replace(".", r"\.").replace("+", r"\+")
        case Number():
            positive, negative = numbers.regexes(shape)
            parts = [f"/{part}/" for part in dict.fromkeys(positive)]
            parts += [f"~/{part}/" for part in negative]
            return parts[0] if len(parts) == 1 else f"({' & '.join(parts)})"
    raise AssertionError(shape)


_ESCAPED = {
    code: spell.by_number(chr(code)) for code in range(0x20, 0x7F) if chr(code) not in spell.PLAIN
}
# Where most letters come anyway, length matters more than how many there are.
MANY_LETTERS = 500
_ESCAPED_LONG = {code: text for code, text in _ESCAPED.items() if not chr(code).islower()}


def _spelt(value: str, table: dict[int, str] = _ESCAPED) -> str:
    """The inside of a string that is known: fast, since enums may be long."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return value.translate(table)
    return spell.regex(tree.literal(value), Spelling.JSON)
