"""Random grammars with a slow and plain oracle: which texts may still be completed.

A grammar is a tree that is written as a regex or as EBNF rules, and read by an Earley recogniser
that shares nothing with the code under test. It is fed byte by byte; a character in the making is a
range of code points.
"""

import random
from dataclasses import dataclass

LAST = 0x10FFFF
CHARACTERS = "abx1 ,(é€😀"


@dataclass(frozen=True)
class Class:
    """One character of the ranges."""

    ranges: tuple[tuple[int, int], ...]
    spelling: str  # inside of brackets


@dataclass(frozen=True)
class Node:
    kind: str  # text, class, seq, alt, repeat, ref
    value: object


class Draw:
    """One random tree, or rules that refer to each other."""

    def __init__(self, seed, may_recurse_left=True):
        self.random = random.Random(seed)
        self.may_recurse_left = may_recurse_left

    def rules(self):
        count = self.random.randint(1, 4)
        names = ["root", *(f"r{n}" for n in range(1, count))]
        return {name: self.node(3, names) for name in names}

    def node(self, depth, names=()):
        kinds = ["text", "text", "class"]
        if depth:
            kinds += ["seq", "seq", "alt", "repeat"] + (["ref", "ref"] if names else [])
        kind = self.random.choice(kinds)
        match kind:
            case "text":
                length = self.random.randint(1, 3)
                return Node(kind, "".join(self.random.choices(CHARACTERS, k=length)))
            case "class":
                return Node(kind, self.class_())
            case "seq" | "alt":
                parts = tuple(self.node(depth - 1, names) for _ in range(self.random.randint(2, 3)))
                if kind == "alt" and self.random.random() < 0.1:
                    parts = (*parts, Node("text", ""))
                if kind == "seq" and not self.may_recurse_left:
                    parts = (Node("text", self.random.choice(CHARACTERS)), *parts)
                return Node(kind, parts)
            case "repeat":
                counts = [(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)]
                return Node(kind, (self.node(depth - 1), *self.random.choice(counts)))
        ref = Node(kind, self.random.choice(names))
        return ref if self.may_recurse_left else Node("seq", (Node("text", "b"), ref))

    def class_(self):
        if self.random.random() < 0.4:
            return self.random.choice(
                [Class(((0x61, 0x63),), "a-c"), Class(((0x30, 0x39),), "0-9"),
                 Class(((0x20, 0x7E),), " -~"), Class(((0xE0, 0xFF),), "à-ÿ")]
            )  # fmt: skip
        chosen = sorted(set(self.random.choices("abx1é€😀", k=2)))
        ranges = tuple((ord(c), ord(c)) for c in chosen)
        if self.random.random() < 0.5:
            return Class(ranges, "".join(chosen))
        return Class(complement(ranges), "^" + "".join(chosen))


def complement(ranges):
    found, start = [], 0
    for low, high in ranges:
        found.append((start, low - 1))
        start = high + 1
    return tuple(pair for pair in [*found, (start, LAST)] if pair[0] <= pair[1])


_COUNTS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _counts(low, high):
    if (low, high) in _COUNTS:
        return _COUNTS[low, high]
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def as_regex(node):
    match node.kind:
        case "text":
            return "".join("\\" + c if c in "(+*?.[{|)\\^$" else c for c in node.value)
        case "class":
            return f"[{node.value.spelling}]"
        case "seq":
            return "".join(f"(?:{as_regex(part)})" for part in node.value)
        case "alt":
            return "(?:" + "|".join(as_regex(part) for part in node.value) + ")"
    item, low, high = node.value
    return f"(?:{as_regex(item)}){_counts(low, high)}"


def as_rules(rules):
    return "\n".join(f"{name} ::= {_ebnf(node)}" for name, node in rules.items())


def _ebnf(node):
    match node.kind:
        case "text":
            return f'"{node.value}"'
        case "class":
            return f"[{node.value.spelling}]"
        case "ref":
            return node.value
        case "seq":
            return " ".join(f"({_ebnf(part)})" for part in node.value)
        case "alt":
            return "(" + " | ".join(_ebnf(part) for part in node.value) + ")"
    item, low, high = node.value
    return f"({_ebnf(item)}){_counts(low, high)}"


class Oracle:
    """Sequences of symbols: a name, or the ranges of one character."""

    def __init__(self, rules):
        self.rules = {}
        for name, node in rules.items():
            self.rules[name] = self._alternatives(node)
        self._drop_what_never_ends()
        self.nullable = set()
        while len(self.nullable) != len(self.nullable | (found := self._nullable())):
            self.nullable |= found

    def _nullable(self):
        return {
            name for name, options in self.rules.items()
            if any(all(symbol in self.nullable for symbol in option) for option in options)
        }  # fmt: skip

    def _new(self, options):
        name = f"#{len(self.rules)}"
        self.rules[name] = options
        return name

    def _alternatives(self, node):
        if node.kind == "alt":
            return [option for part in node.value for option in self._alternatives(part)]
        return [self._sequence(node)]

    def _sequence(self, node):
        match node.kind:
            case "text":
                return tuple(((ord(c), ord(c)),) for c in node.value)
            case "class":
                return (node.value.ranges,)
            case "ref":
                return (node.value,)
            case "seq":
                return tuple(symbol for part in node.value for symbol in self._sequence(part))
            case "alt":
                return (self._new(self._alternatives(node)),)
        item, low, high = node.value
        one = self._sequence(item)
        if high is None:
            name = self._new([()])
            self.rules[name] = [(), (*one, name)]
            return (*one * low, name)
        rest = ()
        for _ in range(high - low):
            rest = (self._new([(), (*one, *rest)]),)
        return (*one * low, *rest)

    def _drop_what_never_ends(self):
        good = set()
        while True:
            found = {
                name for name, options in self.rules.items()
                if any(all(not isinstance(s, str) or s in good for s in o) for o in options)
            }  # fmt: skip
            if found == good:
                break
            good = found
        self.rules = {
            name: [o for o in options if all(not isinstance(s, str) or s in good for s in o)]
            for name, options in self.rules.items() if name in good
        }  # fmt: skip

    def start(self):
        """None when there is no text at all."""
        if "root" not in self.rules:
            return None
        items = {("root", option, 0, 0) for option in self.rules["root"]}
        return State((self._closed((), items),))

    def _closed(self, charts, items):
        here, todo, found = len(charts), list(items), set(items)

        def add(item):
            if item not in found:
                found.add(item)
                todo.append(item)

        while todo:
            name, option, dot, origin = todo.pop()
            if dot == len(option):
                for parent in list(found) if origin == here else charts[origin]:
                    if parent[2] < len(parent[1]) and parent[1][parent[2]] == name:
                        add((parent[0], parent[1], parent[2] + 1, parent[3]))
                continue
            symbol = option[dot]
            if isinstance(symbol, str):
                for following in self.rules[symbol]:
                    add((symbol, following, 0, here))
                if symbol in self.nullable:
                    add((name, option, dot + 1, origin))
        return frozenset(found)

    def feed(self, state, byte):
        """The state after one more byte; None when no text goes on like this."""
        if byte not in state.after:
            state.after[byte] = self._fed(state, state.pending + bytes([byte]))
        return state.after[byte]

    def _fed(self, state, pending):
        window = _window(pending)
        if window is None:
            return None
        low, high, is_whole = window
        charts = state.charts
        scanned = frozenset(
            item for item in state.scannable if _overlaps(item[1][item[2]], low, high)
        )
        if not scanned:
            return None
        if not is_whole:
            return State(charts, pending, state)
        if scanned not in state.made:  # most characters do the same
            moved = {(name, option, dot + 1, origin) for name, option, dot, origin in scanned}
            state.made[scanned] = State((*charts, self._closed(charts, moved)))
        return state.made[scanned]

    def is_complete(self, state):
        return not state.pending and any(
            name == "root" and dot == len(option) and origin == 0
            for name, option, dot, origin in state.charts[-1]
        )


class State:
    """Charts of whole characters, and the bytes of one in the making."""

    def __init__(self, charts, pending=b"", base=None):
        self.charts, self.pending, self.after = charts, pending, {}
        self.made = base.made if base else {}
        self.scannable = base.scannable if base else [
            item for item in charts[-1]
            if item[2] < len(item[1]) and not isinstance(item[1][item[2]], str)
        ]  # fmt: skip


def _window(data):
    """Code points that a beginning of UTF-8 may become, and whether it is a whole character."""
    first = data[0]
    if first < 0x80:
        return first, first, True
    size = 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4
    if not 0xC2 <= first <= 0xF4 or any(not 0x80 <= byte < 0xC0 for byte in data[1:]):
        return None
    low = high = first & (0xFF >> (size + 1))
    for index in range(1, size):
        byte = data[index] & 0x3F if index < len(data) else None
        low, high = (low << 6) + (byte or 0), (high << 6) + (0x3F if byte is None else byte)
    low, high = max(low, {2: 0x80, 3: 0x800, 4: 0x10000}[size]), min(high, LAST)
    return (low, high, len(data) == size) if low <= high else None


def _overlaps(ranges, low, high):
    for first, last in ranges:
        start, end = max(first, low), min(last, high)
        if start <= end and not (0xD800 <= start and end <= 0xDFFF):
            return True
    return False
