"""Terminals of scalars: the JSON spellings of strings, numbers and constants."""

from inferlet.grammars.regex import spell, tree
from inferlet.grammars.regex.spell import Spelling
from inferlet.grammars.schema import numbers
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.shapes import Boolean, Null, Number, Shape, String

SPACE = r"[\x{20}\x{9}\x{A}\x{D}]{0,64}"
_QUOTE = r"\x{22}"
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


def terminal(shape: Shape) -> str:
    match shape:
        case Null():
            return "/null/"
        case Boolean(values):
            return "/" + "|".join(str(value).lower() for value in sorted(values, reverse=True)) + "/"
        case String():
            return string(tree_of(shape))
        case Number(values=values) if values is not None:
            texts = [text for value in values for text in numbers.spellings(value)]
            return "/" + "|".join(spell.regex(tree.literal(t), Spelling.TEXT) for t in texts) + "/"
        case Number():
            positive, negative = numbers.regexes(shape)
            parts = [f"/{part}/" for part in dict.fromkeys(positive)]
            parts += [f"~/{part}/" for part in negative]
            return parts[0] if len(parts) == 1 else f"({' & '.join(parts)})"
    raise AssertionError(shape)
