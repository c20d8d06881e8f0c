"""Small automata over characters, to see whether a lexeme could be read too far.

The engine reads the longest lexeme. That loses texts when, after a lexeme has ended, the next
character could both continue some lexeme and begin what follows. `is_safe` says that it cannot.
"""

from dataclasses import dataclass, field

from inferlet.grammars import charset
from inferlet.grammars.charset import CharSet
from inferlet.grammars.regex.tree import Alt, Chars, Node, Repeat, Seq

MAX_STATES = 600
MAX_PAIRS = 60_000


class TooLarge(Exception):
    """The automaton or the search would be large; the caller cuts the lexeme instead."""


@dataclass
class Automaton:
    """State 0 is the start. Moves read a character; no state is without a way to the end."""

    moves: list[list[tuple[CharSet, int]]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)

    def first(self) -> CharSet:
        return charset.union(*(found for found, _ in self.moves[0]))


def automaton(node: Node) -> Automaton:
    """Glushkov's: one state for each character of the expression, and the start."""
    builder = _Builder()
    first, last, is_nullable = builder.visit(node)
    found = Automaton([[] for _ in builder.chars])
    for position in first:
        found.moves[0].append((builder.chars[position], position))
    for position, following in enumerate(builder.follow):
        for after in following:
            found.moves[position].append((builder.chars[after], after))
    found.ends = set(last) | ({0} if is_nullable else set())
    return found


class _Builder:
    def __init__(self) -> None:
        self.chars: list[CharSet] = [()]
        self.follow: list[set[int]] = [set()]

    def visit(self, node: Node) -> tuple[set[int], set[int], bool]:
        """First and last positions, and whether the empty text matches."""
        match node:
            case Chars(found):
                if len(self.chars) > MAX_STATES:
                    raise TooLarge
                self.chars.append(found)
                self.follow.append(set())
                here = {len(self.chars) - 1}
                return here, here, False
            case Seq(items):
                return self._sequence([self.visit(item) for item in items])
            case Alt(items):
                parts = [self.visit(item) for item in items]
                firsts, lasts = (set().union(*(part[i] for part in parts)) for i in (0, 1))
                return firsts, lasts, any(part[2] for part in parts)
            case Repeat(item, low, high):
                return self._repeat(item, low, high)
        raise TooLarge

    def _sequence(self, parts: list) -> tuple[set[int], set[int], bool]:
        first: set[int] = set()
        last: set[int] = set()
        is_nullable = True
        for part_first, part_last, part_nullable in parts:
            for position in last:
                self.follow[position] |= part_first
            if is_nullable:
                first |= part_first
            last = part_last | last if part_nullable else set(part_last)
            is_nullable = is_nullable and part_nullable
        return first, last, is_nullable

    def _repeat(self, item: Node, low: int, high: int | None) -> tuple[set[int], set[int], bool]:
        if max(low, high or 0) > MAX_STATES:
            raise TooLarge
        parts = [self.visit(item) for _ in range(low if high is None else high)]
        if high is None:
            loop = self.visit(item)
            for position in loop[1]:
                self.follow[position] |= loop[0]
            parts.append((loop[0], loop[1], True))
        else:
            parts[low:] = [(first, last, True) for first, last, _ in parts[low:]]
        return self._sequence(parts)


def is_safe(one: Automaton, following: CharSet, other: Automaton) -> bool:
    """Whether no text of `one` is the start of a longer text of `other` that goes on with a
    character of `following`."""
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        state, rival = todo.pop()
        for chars, after in one.moves[state]:
            for rival_chars, rival_after in other.moves[rival]:
                pair = (after, rival_after)
                if pair in seen or not charset.overlap(chars, rival_chars):
                    continue
                if after in one.ends:
                    for more, _ in other.moves[rival_after]:
                        if charset.overlap(more, following):
                            return False
                seen.add(pair)
                todo.append(pair)
                if len(seen) > MAX_PAIRS:
                    raise TooLarge
    return True
