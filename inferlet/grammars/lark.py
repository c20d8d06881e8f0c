"""The text of a grammar under construction, in the engine's dialect of Lark.

Terminals are regular and matched as a whole; rules are sequences of symbols. A rule from which no
text can be derived is left out, with every alternative that needs it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from inferlet.errors import GrammarError

START = "start"
MAX_SYMBOLS = 30_000  # rules and terminals; the engine counts in 16 bits, its own ones included
ROUNDS = 4
MAX_CHAIN = 1_500  # rules below rules; the engine follows them with its own stack


class Symbol(NamedTuple):
    """A rule or terminal, `low` to `high` times."""

    name: str
    low: int = 1
    high: int | None = 1

    def text(self) -> str:
        match self.low, self.high:
            case 1, 1:
                return self.name
            case 0, 1:
                return f"{self.name}?"
            case 0, None:
                return f"{self.name}*"
            case 1, None:
                return f"{self.name}+"
        return f"{self.name}{{{self.low},{'' if self.high is None else self.high}}}"


Sequence = tuple[Symbol, ...]


@dataclass
class Lark:
    """Terminals by their body, rules by their name."""

    terminals: dict[str, str] = field(default_factory=dict)
    rules: dict[str, list[Sequence]] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)  # rules written by the engine's own syntax
    uses: dict[str, tuple[str, ...]] = field(default_factory=dict)  # terminals in terminals
    _made: dict[tuple, str] = field(default_factory=dict)

    def terminal(self, body: str, *uses: str) -> str:
        """The name of a terminal, whose body may use others by name; equal bodies share it."""
        name = self.terminals.get(body)
        if name is None:
            name = self.terminals[body] = f"T{len(self.terminals)}"
            self.uses[name] = uses
            self._check_size()
        return name

    def new_name(self) -> str:
        name = f"r{len(self.rules) + len(self.raw)}"
        self.rules[name] = []
        self._check_size()
        return name

    def _check_size(self) -> None:
        if len(self.terminals) + len(self.rules) > MAX_SYMBOLS:
            raise GrammarError(
                f"the grammar needs over {MAX_SYMBOLS} rules\n\nhint: use fewer alternatives"
            )

    def rule(self, *alternatives: Sequence) -> str:
        """The name of a rule; equal bodies share it."""
        known = self._made.get(alternatives)
        if known is None:
            known = self._made[alternatives] = self.new_name()
            self.rules[known] = list(alternatives)
        return known

    def raw_rule(self, body: str) -> str:
        known = self._made.get((body,))
        if known is None:
            known = self._made[(body,)] = f"r{len(self.rules) + len(self.raw)}"
            self.raw[known] = body
        return known

    def productive(self) -> set[str]:
        """Names of everything from which a text can be derived."""
        good = set(self.terminals.values()) | set(self.raw)
        # A rule mostly needs those that were named after it: one or two rounds are enough.
        left = list(reversed(self.rules))
        for _ in range(ROUNDS):
            missing = []
            for name in left:
                for sequence in self.rules[name]:
                    for other, low, _ in sequence:
                        if low and other not in good:
                            break
                    else:
                        good.add(name)
                        break
                else:
                    missing.append(name)
            if not missing or len(missing) == len(left):
                return good
            left = missing
        return self._spread(good, left)

    def _spread(self, good: set[str], left: list[str]) -> set[str]:
        """The same in linear time, for long chains: who waits for whom."""
        uses: dict[str, list[tuple[str, int]]] = {}
        missing: dict[tuple[str, int], int] = {}
        todo: list[str] = []
        for name in left:
            for index, sequence in enumerate(self.rules[name]):
                needed = {s.name for s in sequence if s.low and s.name not in good}
                missing[name, index] = len(needed)
                for other in needed:
                    uses.setdefault(other, []).append((name, index))
                if not needed:
                    todo.append(name)
        while todo:
            name = todo.pop()
            if name in good:
                continue
            good.add(name)
            for key in uses.get(name, ()):
                missing[key] -= 1
                if not missing[key]:
                    todo.append(key[0])
        return good

    def text(self, start: str) -> str | None:
        """The whole grammar; None when no text can be derived from the start."""
        good = self.productive()
        if start not in good:
            return None
        self._check_chain(start)
        lines = [f"{START}: {start}"]
        names = {name: body for body, name in self.terminals.items()}
        todo, seen = [start], {start}
        while todo:
            name = todo.pop()
            if name in names:
                lines.append(f"{name}: {names[name]}")
                todo.extend(other for other in self.uses[name] if other not in seen)
                seen.update(self.uses[name])
                continue
            if name in self.raw:
                lines.append(f"{name}: {self.raw[name]}")
                continue
            kept: dict[str, None] = {}
            for sequence in self.rules[name]:
                used = _kept(sequence, good)
                if used is None:
                    continue
                kept[_spelt(used)] = None
                for symbol in used:
                    if symbol[0] not in seen:
                        seen.add(symbol[0])
                        todo.append(symbol[0])
            lines.append(f"{name}: {' | '.join(kept)}")
        return "\n".join(lines) + "\n"

    def _check_chain(self, start: str) -> None:
        """How deep a walk over the rules goes that enters each once."""
        if len(self.rules) <= MAX_CHAIN:
            return
        seen = {start}
        names: list[Iterator[str]] = [_used(self.rules.get(start, ()))]
        while names:
            name = next(names[-1], None)
            if name is None:
                names.pop()
            elif name not in seen and name in self.rules:
                seen.add(name)
                names.append(_used(self.rules[name]))
                if len(names) > MAX_CHAIN:
                    raise GrammarError(
                        f"the grammar has rules below rules, over {MAX_CHAIN} of them\n\n"
                        "hint: use fewer optional properties in one object, or shorter chains"
                    )


def _used(alternatives: Iterable[Sequence]) -> Iterator[str]:
    return (symbol.name for sequence in alternatives for symbol in sequence)


def _spelt(sequence: Sequence) -> str:
    parts = [symbol[0] if symbol[1] == 1 == symbol[2] else symbol.text() for symbol in sequence]
    return " ".join(parts) or '""'


def _kept(sequence: Sequence, good: set[str]) -> Sequence | None:
    for name, low, high in sequence:
        if name not in good or high == 0:
            break
    else:
        return sequence
    if any(symbol.low and symbol.name not in good for symbol in sequence):
        return None
    return tuple(symbol for symbol in sequence if symbol.name in good and symbol.high != 0)
