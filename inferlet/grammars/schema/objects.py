"""Rules of objects: listed members in order, each at most once, then members of other names.

body     = OPEN head(0) CLOSE, or EMPTY
head(i)  = no member is written yet, and those before `i` never will be
rest(i)  = at least one is written
"""

import itertools
from typing import TYPE_CHECKING

from inferlet.grammars.lark import Sequence, Symbol
from inferlet.grammars.regex import tree
from inferlet.grammars.schema import members
from inferlet.grammars.schema.document import refuse
from inferlet.grammars.schema.scalars import SPACE
from inferlet.grammars.schema.shapes import Object, both

if TYPE_CHECKING:
    from inferlet.grammars.schema.rules import Rules

MAX_STATES = 20_000
MAX_SOME = 4  # members that there must be, of names that are not listed
MAX_ROOM = 1000  # rules for them, where the number of members is limited
_NONE: frozenset[int] = frozenset()


def alternatives(rules: "Rules", shape: Object) -> list[Sequence]:
    return _Members(rules, shape).alternatives()


class _Members:
    def __init__(self, rules: "Rules", shape: Object) -> None:
        self.rules, self.shape, self.lark = rules, shape, rules.lark
        self.listed = members.listed(shape)
        needs = {name: rules.expander.emptiness.member_need(shape, name) for name in self.listed}
        # What may come, in order: the member, and whether it must.
        self.members: list[tuple[Sequence, bool]] = []
        for name in self.listed:
            value = rules.symbol(needs[name])
            if value is not None:
                member = (Symbol(rules.key_of(name)), Symbol(value))
                self.members.append((member, name in shape.required))
        self.regions = members.regions(rules.expander, shape)
        self._tails: dict[tuple, Sequence | None] = {}
        self._check_some()
        self.extra = self._extra()

    # ---- members of other names

    def _extra(self, past: frozenset[int] = _NONE, hit: frozenset[int] = _NONE) -> Sequence | None:
        """One member that is not listed. `hit`: it is the last one of these that there must be;
        `past`: those of which the last was there, so no name of theirs may come again."""
        found: list[Sequence] = []
        some = self.shape.some
        for names, need in self.regions:
            parts = [names, *(tree.Not(some[i].names) for i in sorted(past))]
            for index in sorted(hit):
                parts.append(some[index].names)
                need = both(need, some[index].need)
            value = self.rules.symbol(need)
            node = members.all_of(parts)
            if value is None or (len(parts) > 1 and self.rules.expander.is_void(node)):
                continue
            found.append((Symbol(self.rules.key(node)), Symbol(value)))
        if len(found) > 1:
            return (Symbol(self.lark.rule(*found)),)
        return found[0] if found else None

    def _with_some(self, past: frozenset[int], room: int | None, is_first: bool) -> Sequence | None:
        """Other members, among them all that there must be: at most `room`, if not None."""
        if (known := self._tails.get((past, room, is_first), self)) is not self:
            return known
        comma = () if is_first else (Symbol(self.rules.comma),)
        left = sorted(frozenset(range(len(self.shape.some))) - past)
        found: list[Sequence] = []
        if room is None:
            found = self._any_number(past, left, is_first)
        elif room and (plain := self._extra(past)):
            rest = self._with_some(past, room - 1, is_first=False)
            found = [(*comma, *plain, *rest)] if rest is not None else []
        if not left and not is_first:
            found.append(())
        for hit in _subsets(left) if room != 0 else ():
            member = self._extra(past, hit)
            rest = member and self._with_some(past | hit, room and room - 1, is_first=False)
            if member and rest is not None:
                found.append((*comma, *member, *rest))
        made = (Symbol(self.lark.rule(*found)),) if found else None
        self._tails[past, room, is_first] = made
        return made

    def _any_number(self, past: frozenset[int], left: list[int], is_first: bool) -> list[Sequence]:
        """One or more members, then the next of those that there must be."""
        plain = self._extra(past)
        if plain is None:
            return []
        more = self.lark.rule((Symbol(self.rules.comma), *plain))
        start = (*plain, Symbol(more, 0, None)) if is_first else (Symbol(more, 1, None),)
        if not left:
            return [start]
        found = []
        for hit in _subsets(left):
            member = self._extra(past, hit)
            rest = member and self._with_some(past | hit, None, is_first=False)
            if member and rest is not None:
                found.append((*start, Symbol(self.rules.comma), *member, *rest))
        return found

    def _check_some(self) -> None:
        """Two that there must be may be told apart by names, or by one of them alone having a say
        about values: else the order in which they come would matter."""
        some, high = self.shape.some, self.shape.high
        if len(some) > MAX_SOME or (some and high is not None and high << len(some) > MAX_ROOM):
            raise self._refuse("not", "asks for too many members that are not listed")
        for one, other in itertools.combinations(some, 2):
            if one.need and other.need and not self.rules.expander.is_void(
                tree.Both((one.names, other.names))
            ):  # fmt: skip
                raise self._refuse("not", "asks for two members whose names may be the same")

    def _refuse(self, keyword: str, why: str) -> Exception:
        return refuse(self.shape.place or "#", keyword, why)

    # ---- the sequence

    def alternatives(self) -> list[Sequence]:
        low, high = self.shape.low, self.shape.high
        found: list[Sequence] = []
        if low == 0 and not self.shape.required and not self.shape.some:
            found.append((Symbol(self.lark.terminal(rf"/\{{{SPACE}\}}/")),))
        if high == 0 or (not self.members and self.extra is None):
            return found
        head = self._states(low, high)
        if head is not None:
            open_, close = rf"/\{{{SPACE}/", rf"/{SPACE}\}}/"
            found.append(
                (Symbol(self.lark.terminal(open_)), *head, Symbol(self.lark.terminal(close)))
            )
        return found

    def _states(self, low: int, high: int | None) -> Sequence | None:
        """From the last member backwards; `count` members are written, as far as that matters."""
        total = len(self.members)
        top = min(total, high) if high is not None else min(total, low)
        if top and (top + 1) * (total + 1) > MAX_STATES:
            raise refuse(self.shape.place or "#", "minProperties",
                         f"and `maxProperties` over {total} properties are too large")  # fmt: skip
        rest = {count: self._end(count, low, high) for count in range(top + 1)}
        head = self._first_extra(low, high)
        for member, is_required in reversed(self.members):
            head = self._choice(
                self._then(member, rest.get(min(1, top) if high is None else 1)),
                None if is_required else head,
            )
            rest = {
                count: self._step(member, is_required, rest, count, top if high is None else None)
                for count in range(top + 1)
            }
        return head

    def _step(
        self, member: Sequence, is_required: bool, rest: dict, count: int, top: int | None
    ) -> Sequence | None:
        following = count + 1 if top is None else min(count + 1, top)
        written = self._then((Symbol(self.rules.comma), *member), rest.get(following))
        return self._choice(written, None if is_required else rest[count])

    @staticmethod
    def _then(start: Sequence, rest: Sequence | None) -> Sequence | None:
        return None if rest is None else (*start, *rest)

    def _choice(self, one: Sequence | None, other: Sequence | None) -> Sequence | None:
        """A rule of its own once there are two: sequences stay short."""
        if one is None or other is None:
            found = one if other is None else other
            if found is None or len(found) <= 12:
                return found
            return (Symbol(self.lark.rule(found)),)
        return (Symbol(self.lark.rule(one, other)),)

    def _end(self, count: int, low: int, high: int | None) -> Sequence | None:
        """All listed members are past."""
        missing = max(0, low - count)
        room = None if high is None else high - count
        if self.shape.some:
            self._check_missing(missing)
            return self._with_some(_NONE, room, is_first=False)
        if self.extra is None or room == 0:
            return None if missing else ()
        if room is not None and room < missing:
            return None
        self._check_missing(missing)
        more = self.lark.rule((Symbol(self.rules.comma), *self.extra))
        return (Symbol(more, missing, room),)

    def _first_extra(self, low: int, high: int | None) -> Sequence | None:
        if self.extra is None:
            return None
        self._check_missing(low)
        if self.shape.some:
            return self._with_some(_NONE, high, is_first=True)
        more = self.lark.rule((Symbol(self.rules.comma), *self.extra))
        return (*self.extra, Symbol(more, max(0, low - 1), None if high is None else high - 1))

    def _check_missing(self, missing: int) -> None:
        """The same name twice is one member, and no grammar tells names apart."""
        if missing > 1:
            raise refuse(self.shape.place or "#", "minProperties",
                         f"{self.shape.low} over members that are not listed is not supported",
                         "list the members under `properties`")  # fmt: skip


def _subsets(items: list[int]) -> list[frozenset[int]]:
    """Those that are not empty."""
    sizes = range(1, len(items) + 1)
    return [frozenset(one) for size in sizes for one in itertools.combinations(items, size)]
