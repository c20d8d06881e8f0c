"""Shapes become rules. Scalars are terminals; objects and arrays have files of their own."""

import json
from decimal import Decimal

from inferlet.grammars.lark import Lark, Sequence, Symbol
from inferlet.grammars.regex import tree
from inferlet.grammars.schema import arrays, numbers, objects
from inferlet.grammars.schema.document import Document, Place, refuse
from inferlet.grammars.schema.expand import Expander
from inferlet.grammars.schema.scalars import SPACE, constant, string, terminal
from inferlet.grammars.schema.shapes import (
    Array,
    Need,
    Number,
    Object,
    Shape,
)

_ENGINE_JSON = {"whitespace_flexible": False}
_EXACT = Decimal(2) ** 53
MAX_STEP = 100_000  # of `multipleOf`, in units of its last digit: the engine keeps a state for each


class Rules:
    """Rules of one document, written into a grammar."""

    def __init__(self, document: Document, lark: Lark, expander: Expander) -> None:
        self.document = document
        self.lark = lark
        self.expander = expander
        self.comma = lark.terminal(f"/{SPACE},{SPACE}/")
        self._colon = lark.terminal(f"/{SPACE}:{SPACE}/")
        self._names: dict[Need, str | None] = {}
        self._todo: list[tuple[str, list[Shape]]] = []

    def add(self, need: Need) -> str | None:
        """The symbol of everything that satisfies `need`; None when nothing does."""
        name = self.symbol(need)
        while self._todo:
            rule, shapes = self._todo.pop()
            self.lark.rules[rule] = self._alternatives(shapes)
        return name

    def symbol(self, need: Need) -> str | None:
        """The rule of a need, written later so that schemas may be recursive."""
        if need in self._names:
            return self._names[need]
        shapes = self.expander.union_of(need)
        name: str | None = None
        if shapes and not any(isinstance(shape, Array | Object) for shape in shapes):
            name = self._scalars(shapes)
        elif shapes:
            name = self.lark.new_name()
            self._todo.append((name, shapes))
        self._names[need] = name
        return name

    def _alternatives(self, shapes: list[Shape]) -> list[Sequence]:
        found: list[Sequence] = []
        scalars = [shape for shape in shapes if not isinstance(shape, Array | Object)]
        if scalars:
            found.append((Symbol(self._scalars(scalars)),))
        for shape in shapes:
            if isinstance(shape, Array):
                found += arrays.alternatives(self, shape)
            elif isinstance(shape, Object):
                found += objects.alternatives(self, shape)
        return found

    def _scalars(self, shapes: list[Shape]) -> str:
        """One terminal for all, so that the engine follows one."""
        bodies, rules = [], []
        for shape in shapes:
            if isinstance(shape, Number) and shape.indivisible and shape.values is None:
                raise refuse(self._multiple(), "multipleOf", "cannot be negated")
            if isinstance(shape, Number) and shape.multiples and shape.values is None:
                rules.append((Symbol(self._multiples(shape)),))
            else:
                bodies.append(terminal(shape))
        bodies = list(dict.fromkeys(bodies))
        if bodies:
            name = self.lark.terminal(" | ".join(bodies))
            if not rules:
                return name
            rules.append((Symbol(name),))
        return self.lark.rule(*rules)

    def _multiples(self, shape: Number) -> str:
        """The engine's own numbers: it knows multiples of a decimal step."""
        step = numbers.common_multiple(shape.multiples)
        bounds = [bound for bound in (shape.low, shape.high) if bound]
        if (
            shape.excluded
            or shape.is_fraction
            or any(abs(b[0]) > _EXACT for b in (*bounds, (step,)))
        ):
            raise refuse(
                self._multiple(), "multipleOf", "is not supported together with these limits"
            )
        if int(step.scaleb(max(0, -step.as_tuple().exponent))) > MAX_STEP:
            raise refuse(self._multiple(), "multipleOf", f"{step} has too many digits")
        schema: dict[str, object] = {
            "type": "integer" if shape.is_integer else "number",
            "multipleOf": _plain(step),
            "x-guidance": _ENGINE_JSON,
        }
        for end, bound in (("inimum", shape.low), ("aximum", shape.high)):
            if bound:
                keyword = f"exclusiveM{end}" if bound[1] else f"m{end}"
                schema[keyword] = _plain(bound[0])
        return self.lark.raw_rule(f"%json {json.dumps(schema)}")

    def key_of(self, name: str) -> str:
        """The same for one name."""
        return self.lark.terminal(f"/{constant(name)}/ {self._colon}", self._colon)

    def _multiple(self) -> Place:
        """Where the document has one, for messages: shapes of numbers know no place."""
        return self.document.first_with("multipleOf")

    def key(self, node: tree.Node) -> str:
        """A member's name and its colon: one terminal, so that the engine has less to follow."""
        return self.lark.terminal(f"{string(node)} {self._colon}", self._colon)


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
