"""Rules of objects: listed members in order, each at most once, then members of other names.

body     = OPEN head(0) CLOSE, or EMPTY
head(i)  = no member is written yet, and those before `i` never will be
rest(i)  = at least one is written
"""

import itertools
from typing import TYPE_CHECKING

from inferlet.grammars.lark import Sequence, Symbol
from inferlet.grammars.regex import tree
from inferlet.grammars.schema import limits
from inferlet.grammars.schema.document import refuse
from inferlet.grammars.schema.emptiness import tree_of
from inferlet.grammars.schema.scalars import SPACE
from inferlet.grammars.schema.shapes import Layer, Need, Object, String, both

if TYPE_CHECKING:
    from inferlet.grammars.schema.rules import Rules

MAX_PATTERNS = 6
MAX_STATES = 20_000


def alternatives(rules: "Rules", shape: Object) -> list[Sequence]:
    return _Members(rules, shape).alternatives()


class _Members:
    def __init__(self, rules: "Rules", shape: Object) -> None:
        self.rules, self.shape, self.lark = rules, shape, rules.lark
        names = [name for layer in shape.layers for name, _ in layer.properties]
        self.listed = list(dict.fromkeys((*names, *shape.required)))
        needs = {name: rules.expander.emptiness.member_need(shape, name) for name in self.listed}
        # What may come, in order: the member, and whether it must.
        self.members: list[tuple[Sequence, bool]] = []
        for name in self.listed:
            value = rules.symbol(needs[name])
            if value is not None:
                member = (Symbol(rules.key(tree.literal(name))), Symbol(value))
                self.members.append((member, name in shape.required))
        self.extra = self._extra()

    # ---- members of other names

    def _extra(self) -> Sequence | None:
        """One member that is not listed: its value depends on the patterns that its name has."""
        found: list[Sequence] = []
        layers = self._closed()
        patterns = list(dict.fromkeys(p for layer in layers for p, _ in layer.patterns))
        if len(patterns) > MAX_PATTERNS:
            raise refuse(self.shape.place or "#", "patternProperties",
                         f"has {len(patterns)} patterns; at most {MAX_PATTERNS} are supported")  # fmt: skip
        for matched in itertools.product((True, False), repeat=len(patterns)):
            matches = dict(zip(patterns, matched, strict=True))
            need: Need = ()
            for layer in layers:
                need = both(need, layer.of_name(None, matches))
            value = self.rules.symbol(need)
            key = None if value is None else self._extra_key(matches)
            if key is not None:
                found.append((Symbol(key), Symbol(value)))
        if len(found) > 1:
            return (Symbol(self.lark.rule(*found)),)
        return found[0] if found else None

    def _closed(self) -> list[Layer]:
        """A schema that lists properties allows no others, unless one here says what they are."""
        layers = [Layer((), layer.patterns, layer.others) for layer in self.shape.layers]
        is_listing = any(layer.is_listing for layer in self.shape.layers)
        if is_listing and not any(layer.is_open for layer in self.shape.layers):
            patterns = tuple((p, ()) for layer in layers for p, _ in layer.patterns)
            never = ((self.rules.document.false, True),)
            layers.append(Layer((), patterns, never))
        return layers

    def _extra_key(self, matches: dict[str, bool]) -> str | None:
        parts: list[tree.Node] = []
        for pattern, is_match in matches.items():
            node = limits.search(pattern)
            parts.append(node if is_match else tree.Not(node))
        if self.shape.names:
            options = self.rules.expander.union_of(self.shape.names)
            texts = [tree_of(option) for option in options if isinstance(option, String)]
            parts.append(tree.either(*texts) if texts else tree.NOTHING)
        if self.listed:
            parts.append(tree.Not(tree.either(*map(tree.literal, self.listed))))
        if not parts:
            return self.rules.key(tree.ANY_TEXT)
        node = parts[0] if len(parts) == 1 else tree.Both(tuple(parts))
        is_simple = not matches and not self.shape.names
        if not is_simple and self.rules.expander.is_void(node):
            return None
        return self.rules.key(node)

    # ---- the sequence

    def alternatives(self) -> list[Sequence]:
        low, high = self.shape.low, self.shape.high
        found: list[Sequence] = []
        if low == 0 and not self.shape.required:
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
        more = self.lark.rule((Symbol(self.rules.comma), *self.extra))
        return (*self.extra, Symbol(more, max(0, low - 1), None if high is None else high - 1))

    def _check_missing(self, missing: int) -> None:
        """The same name twice is one member, and no grammar tells names apart."""
        if missing > 1:
            raise refuse(self.shape.place or "#", "minProperties",
                         f"{self.shape.low} over members that are not listed is not supported",
                         "list the members under `properties`")  # fmt: skip
