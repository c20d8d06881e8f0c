"""Rules of arrays. `contains` and `uniqueItems` count, so their items are written one by one."""

import itertools
from typing import TYPE_CHECKING

from inferlet.grammars.lark import Sequence, Symbol
from inferlet.grammars.schema.document import refuse
from inferlet.grammars.schema.scalars import SPACE, terminal
from inferlet.grammars.schema.shapes import (
    Array,
    Boolean,
    Need,
    Null,
    Number,
    Shape,
    String,
    both,
    item_need,
)

if TYPE_CHECKING:
    from inferlet.grammars.schema.rules import Rules

MAX_COUNTED = 64  # items that are written one by one
MAX_UNIQUE = 1_024  # sets of values, each a state


def alternatives(rules: "Rules", shape: Array) -> list[Sequence]:
    return _Items(rules, shape).alternatives()


class _Items:
    def __init__(self, rules: "Rules", shape: Array) -> None:
        self.rules, self.shape, self.lark = rules, shape, rules.lark
        self.low, self.high = shape.low, self._high()
        self.empty = (Symbol(self.lark.terminal(rf"/\[{SPACE}\]/")),)
        self.open = Symbol(self.lark.terminal(rf"/\[{SPACE}/"))
        self.close = Symbol(self.lark.terminal(rf"/{SPACE}\]/"))
        self.comma = Symbol(rules.comma)

    def _high(self) -> int | None:
        """The first item that nothing satisfies ends the array before it."""
        high = self.shape.high
        for index in range(len(self.shape.prefix) + 1):
            if high is not None and index >= high:
                return high
            if self.rules.symbol(item_need(self.shape, index)) is None:
                return index
        return high

    def alternatives(self) -> list[Sequence]:
        if self.high is not None and self.high < self.low:
            return []
        if self.shape.contains:
            return self._counted()
        if self.shape.is_unique and self.high not in (0, 1) and not self._are_disjoint():
            return self._unique()
        found = [self.empty] if self.low == 0 else []
        if self.high != 0:
            found.append((self.open, *self._plain(), self.close))
        return found

    def _plain(self) -> Sequence:
        """Items of the prefix are nested, so that each may be the last."""
        length = len(self.shape.prefix)
        if self.high is not None:
            length = min(length, self.high)
        rest: Sequence = ()
        start = max(length, 1)
        if self.high is None or self.high > start:
            item = self._symbol(self.shape.items)
            more = self.lark.rule((self.comma, item))
            high = None if self.high is None else self.high - start
            rest = (Symbol(more, max(0, self.low - start), high),)
        for index in range(start - 1, 0, -1):
            item = self._symbol(item_need(self.shape, index))
            whole = self.lark.rule((self.comma, item, *rest))
            rest = (Symbol(whole, 1 if index < self.low else 0, 1),)
        return (self._symbol(item_need(self.shape, 0)), *rest)

    def _symbol(self, need: Need) -> Symbol:
        return Symbol(self.rules.symbol(need))

    # ---- contains

    def _counted(self) -> list[Sequence]:
        """States are (items so far, how many of them count for each `contains`)."""
        if self.shape.is_unique and self.high not in (0, 1):
            raise self._refuse("uniqueItems", "is not supported beside `contains`")
        contains = self.shape.contains
        top = max(len(self.shape.prefix), self.low, self.high or 0, 1)
        top = max(top, *(c.start for c in contains))
        size = top + sum(c.low if c.high is None else c.high for c in contains)
        if size > MAX_COUNTED or len(contains) > 3:
            raise self._refuse("contains", "with these limits is too large")
        names: dict[tuple, str] = {}
        todo: list[tuple] = []

        def state(index: int, counts: tuple[int, ...]) -> Symbol:
            key = (min(index, top), counts)
            if key not in names:
                names[key] = self.lark.new_name()
                todo.append(key)
            return Symbol(names[key])

        first = state(0, (0,) * len(contains))
        while todo:
            index, counts = key = todo.pop()
            self.lark.rules[names[key]] = self._state(index, counts, state)
        found = [(self.open, first)]
        if self.low == 0 and all(c.low == 0 for c in contains):
            found.append(self.empty)
        return found

    def _state(self, index: int, counts: tuple[int, ...], state: object) -> list[Sequence]:
        contains = self.shape.contains
        found: list[Sequence] = []
        if index and index >= self.low and all(
            count >= c.low for count, c in zip(counts, contains, strict=True)
        ):  # fmt: skip
            found.append((self.close,))
        if self.high is not None and index >= self.high:
            return found
        for hits in itertools.product((True, False), repeat=len(contains)):
            need = item_need(self.shape, index)
            following = []
            if any(hit and index < one.start for hit, one in zip(hits, contains, strict=True)):
                continue
            for hit, count, one in zip(hits, counts, contains, strict=True):
                if index >= one.start:
                    need = both(need, one.need if hit else one.unless)
                following.append(self._next_count(count, one, hit))
            value = self.rules.symbol(need)
            if value is None or None in following:
                continue
            start = (self.comma,) if index else ()
            found.append((*start, Symbol(value), state(index + 1, tuple(following))))
        return found

    @staticmethod
    def _next_count(count: int, one: object, hit: bool) -> int | None:
        if not hit:
            return count
        if one.high is None:
            return min(count + 1, one.low)
        return count + 1 if count < one.high else None

    # ---- uniqueItems

    def _are_disjoint(self) -> bool:
        """Whether a tuple's items differ anyway."""
        if self.high is None or self.high > len(self.shape.prefix):
            return False
        pairs = itertools.combinations(self.shape.prefix[: self.high], 2)
        return all(self.rules.expander.emptiness.of_need(both(a, b)) for a, b in pairs)

    def _unique(self) -> list[Sequence]:
        """Each item takes one of the values: so a state is the set of those that are used."""
        bits: dict[Shape, int] = {}
        names: dict[int, str] = {}
        todo: list[int] = []

        def state(used: int) -> Symbol:
            """What follows when the values of the bits are used."""
            if used not in names:
                if len(names) >= MAX_UNIQUE:
                    raise self._refuse(
                        "uniqueItems", f"is supported for at most {MAX_UNIQUE} sets of values"
                    )
                names[used] = self.lark.new_name()
                todo.append(used)
            return Symbol(names[used])

        found = [(self.open, state(0))]
        while todo:
            used = todo.pop()
            count = used.bit_count()
            more: list[Sequence] = [(self.close,)] if count and count >= self.low else []
            if self.high is None or count < self.high:
                start = (self.comma,) if used else ()
                for value in self._values(item_need(self.shape, count)):
                    bit = bits.setdefault(value, 1 << len(bits))
                    if not used & bit:
                        text = Symbol(self.lark.terminal(terminal(value)))
                        more.append((*start, text, state(used | bit)))
            self.lark.rules[names[used]] = more
        return [*found, self.empty] if self.low == 0 else found

    def _values(self, need: Need) -> list[Shape]:
        """A shape for each value that an item can be."""
        shapes: dict[Shape, None] = {}
        for shape in self.rules.expander.union_of(need):
            match shape:
                case Null():
                    shapes[shape] = None
                case Boolean(values):
                    shapes.update((Boolean(frozenset((value,))), None) for value in values)
                case Number(values=values) | String(values=values) if values is not None:
                    shapes.update((type(shape)(values=(value,)), None) for value in values)
                case _:
                    raise self._refuse("uniqueItems", "is supported for items of an `enum` only")
        return list(shapes)

    def _refuse(self, keyword: str, why: str) -> Exception:
        return refuse(self.shape.place or "#", keyword, why)
