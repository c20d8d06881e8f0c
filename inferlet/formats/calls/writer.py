"""Pieces of the grammar of calls: markers, which may be special tokens, and texts that end at one."""

import json
import re
from collections.abc import Mapping

from inferlet.grammars import charset, engine
from inferlet.grammars.lark import Lark, Sequence, Symbol
from inferlet.grammars.regex import spell, tree
from inferlet.grammars.regex.spell import Spelling

NEWLINE, GAP = "\ue000", "\ue001"  # in the text of a form: there may be a newline, or a space
_MAYBE = {NEWLINE: "\n", GAP: " "}
ANY_CHARACTER = tree.Chars(charset.ALL)
SOMETHING = tree.Repeat(ANY_CHARACTER, 1, None)


class Writer:
    """Writes into one grammar, for one vocabulary."""

    def __init__(self, lark: Lark, special: Mapping[str, int]) -> None:
        """`special`: ids of the special tokens by their spelling. They match no text."""
        self.lark = lark
        self._special = special
        cuts = sorted(special, key=len, reverse=True)
        self._cuts = re.compile("(" + "|".join(map(re.escape, [*_MAYBE, *cuts])) + ")")

    def literal(self, text: str) -> Sequence:
        """Markers as they are: special tokens where the vocabulary has them."""
        return tuple(map(self._piece, filter(None, self._cuts.split(text))))

    def _piece(self, piece: str) -> Symbol:
        if piece in _MAYBE:
            return Symbol(self.lark.terminal(quoted(_MAYBE[piece])), 0, 1)
        if piece in self._special:
            return Symbol(self.lark.raw_rule(f"<[{self._special[piece]}]>"))
        return Symbol(self.lark.terminal(quoted(piece)))

    def name(self, sequence: Sequence) -> str:
        """One symbol for all of it."""
        if len(sequence) == 1 and sequence[0] == Symbol(sequence[0].name):
            return sequence[0].name
        return self.lark.rule(sequence)

    def text(self, node: tree.Node, end: str, banned: tuple[str, ...]) -> Sequence | None:
        """A text of the tree in which none of `banned` is, and the marker that ends it; None when
        there is no such text."""
        body = tree.Both((tree.ANY_TEXT, node, *map(without, banned)))
        first, *others = filter(None, self._cuts.split(end))
        rest = tuple(map(self._piece, others))
        if first not in self._special:
            if engine.is_void(body):
                return None
            # One terminal: a text may begin like its end.
            whole = f"{spell.lark(body, Spelling.TEXT)} {quoted(first)}"
            return (Symbol(self.lark.terminal(whole)), *rest)
        options: list[Sequence] = [()] if tree.is_nullable(body) else []
        some = tree.Both((*body.items, SOMETHING))
        if not engine.is_void(some):
            options.append((Symbol(self.lark.terminal(spell.lark(some, Spelling.TEXT))),))
        if not options:
            return None
        return (Symbol(self.lark.rule(*options)), self._piece(first), *rest)


def without(marker: str) -> tree.Node:
    """Texts in which the marker is not."""
    around = tree.ANY_TEXT
    return tree.Not(tree.sequence(around, tree.literal(marker), around))


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
