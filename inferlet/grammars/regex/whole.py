"""Anchors and lookaheads are resolved: the tree left says which whole texts match.

`^` and `$` have a meaning at the two ends of an alternative alone. Elsewhere they would match
nothing or hide a mistake, so they are refused.
"""

import itertools

from inferlet.errors import GrammarError
from inferlet.grammars.regex import tree
from inferlet.grammars.regex.parse import ECMA, PLAIN, parse, shorten
from inferlet.grammars.regex.tree import ANY_TEXT, Alt, Anchor, Both, Look, Node, Not, Repeat, Seq

MAX_ALTERNATIVES = 256
MARKS = (Anchor, Look)


def plain(pattern: str) -> Node:
    """Texts that `pattern` matches as a whole; anchors at the ends are without effect."""
    node = parse(pattern, PLAIN)
    if not tree.has_any(node, MARKS):
        return node
    return tree.either(*(_Sequence(items, pattern).stripped() for items in _distribute(node)))


def search(pattern: str) -> Node:
    """Texts in which `pattern` matches somewhere, as the `pattern` of JSON Schema does."""
    node = parse(pattern, ECMA)
    return tree.either(*(_Sequence(items, pattern).searched() for items in _distribute(node)))


def _distribute(node: Node) -> list[tuple[Node, ...]]:
    """The alternatives of `node` as sequences; only groups with marks are multiplied out."""
    match node:
        case Alt(items):
            return [form for item in items for form in _distribute(item)]
        case Seq(items):
            parts = [
                _distribute(item) if tree.has_any(item, MARKS) else [(item,)] for item in items
            ]
            count = 1
            for part in parts:
                count *= len(part)
            if count > MAX_ALTERNATIVES:
                raise GrammarError(f"a pattern with anchors in {count} alternatives is too large")
            return [tuple(itertools.chain(*choice)) for choice in itertools.product(*parts)]
    return [(node,)]


class _Sequence:
    """One alternative: what is anchored, and what is between."""

    def __init__(self, items: tuple[Node, ...], pattern: str) -> None:
        self.pattern = pattern
        first, last = 0, len(items)
        while first < last and _is(items[first], is_start=True):
            first += 1
        while last > first and _is(items[last - 1], is_start=False):
            last -= 1
        self.is_anchored = (first > 0, last < len(items))
        self.items = items[first:last]
        for item in self.items:
            # Lookaheads bring their own anchors: `_resolve` takes them apart.
            if not isinstance(item, Look) and tree.has_any(item, Anchor):
                self._fail(item)

    def _fail(self, node: Node) -> None:
        found = _first_mark(node)
        word = f"`{'^' if found.is_start else '$'}`" if isinstance(found, Anchor) else "a lookahead"
        raise GrammarError(
            f"pattern {shorten(self.pattern)}, position {found.at}: {word} is supported only "
            "at the ends of an alternative\n\nhint: move it to the end of the pattern"
        )

    def stripped(self) -> Node:
        return Seq(self.items)

    def searched(self) -> Node:
        starts, ends = self.is_anchored
        items = list(self.items)
        if not ends and items:
            items[-1] = _least(items[-1])
        if not starts and items:
            items[0] = _least(items[0])
        whole = self._resolve((*items, *(() if ends else (ANY_TEXT,))))
        return whole if starts else tree.sequence(ANY_TEXT, whole)

    def _resolve(self, items: tuple[Node, ...]) -> Node:
        """A lookahead limits everything that follows it, up to the end of the text."""
        for index, item in enumerate(items):
            if isinstance(item, Look):
                ahead = tree.either(
                    *(_Sequence(form, self.pattern)._ahead() for form in _distribute(item.item))
                )
                limit = Not(ahead) if item.is_negative else ahead
                rest = self._resolve(items[index + 1 :])
                return tree.sequence(*items[:index], Both((rest, limit)))
            if tree.has_any(item, Look):
                self._fail(item)
        return tree.sequence(*items)

    def _ahead(self) -> Node:
        if self.is_anchored[0]:
            self._fail(Anchor(True, 0))
        tail = () if self.is_anchored[1] else (ANY_TEXT,)
        return self._resolve((*self.items, *tail))


def _least(node: Node) -> Node:
    """Beside any text, the least number of repetitions says the same: `a{1,255}` is `a` there."""
    return Repeat(node.item, node.low, node.low) if isinstance(node, Repeat) else node


def _is(node: Node, is_start: bool) -> bool:
    return isinstance(node, Anchor) and node.is_start == is_start


def _first_mark(node: Node) -> Anchor | Look:
    if isinstance(node, MARKS):
        return node
    inner = node.items if isinstance(node, Seq | Alt | Both) else (node.item,)
    return next(_first_mark(item) for item in inner if tree.has_any(item, MARKS))
