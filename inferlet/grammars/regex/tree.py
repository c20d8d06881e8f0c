"""The tree of a regular expression. Knows nothing of any dialect."""

from dataclasses import dataclass

from inferlet.grammars import charset
from inferlet.grammars.charset import CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of the set."""

    set: CharSet


@dataclass(frozen=True, slots=True)
class Seq:
    """All, one after the other. `Seq(())` is the empty text."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of them. `Alt(())` matches nothing."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times; `high` None: without end."""

    item: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`."""

    is_start: bool
    at: int


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead."""

    item: "Node"
    is_negative: bool
    at: int


@dataclass(frozen=True, slots=True)
class Both:
    """Texts that all items match as a whole."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Texts that the item does not match as a whole."""

    item: "Node"


Node = Chars | Seq | Alt | Repeat | Anchor | Look | Both | Not

EMPTY = Seq(())
NOTHING = Alt(())
ANY_TEXT = Repeat(Chars(charset.ALL), 0, None)


def literal(text: str) -> Seq:
    return Seq(tuple(Chars(charset.chars(character)) for character in text))


def either(*items: Node) -> Node:
    return items[0] if len(items) == 1 else Alt(items)


def sequence(*items: Node) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Seq) else [item])
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def is_nullable(node: Node) -> bool:
    """Whether the empty text matches."""
    match node:
        case Chars():
            return False
        case Seq(items):
            return all(is_nullable(item) for item in items)
        case Alt(items):
            return any(is_nullable(item) for item in items)
        case Repeat(item, low, _):
            return low == 0 or is_nullable(item)
        case Both(items):
            return all(is_nullable(item) for item in items)
        case Not(item):
            return not is_nullable(item)
        case _:
            return True


def has_any(node: Node, kinds: type | tuple[type, ...]) -> bool:
    """Whether a node of these kinds is in it."""
    if isinstance(node, kinds):
        return True
    match node:
        case Seq(items) | Alt(items) | Both(items):
            return any(has_any(item, kinds) for item in items)
        case Repeat(item, _, _) | Not(item) | Look(item, _, _):
            return has_any(item, kinds)
    return False


def shortest(node: Node) -> int | None:
    """Length of the shortest text; None when there is none, or only the engine can tell."""
    match node:
        case Chars(found):
            return 1 if found else None
        case Seq(items):
            lengths = [shortest(item) for item in items]
            return None if None in lengths else sum(lengths)
        case Alt(items):
            return min((n for item in items if (n := shortest(item)) is not None), default=None)
        case Repeat(item, low, _):
            length = shortest(item)
            return 0 if low == 0 else None if length is None else low * length
    return None
