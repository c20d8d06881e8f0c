"""Rules become the engine's rules and lexemes.

What is regular becomes one lexeme, as large as it can be: lexemes are fast. The engine reads the
longest lexeme, so a lexeme that could be read too far is cut into its parts, down to characters
where needed. The language is always the one that was written.
"""

from collections.abc import Iterator

from inferlet.errors import GrammarError
from inferlet.grammars import charset, engine
from inferlet.grammars.charset import CharSet
from inferlet.grammars.ebnf.automaton import Automaton, TooLarge, automaton, is_safe
from inferlet.grammars.ebnf.linear import components, inlined, linear_form, sizes
from inferlet.grammars.ebnf.parse import ROOT, Ref, Rules, parse
from inferlet.grammars.lark import Lark, Sequence, Symbol
from inferlet.grammars.regex import spell, tree
from inferlet.grammars.regex.tree import Alt, Chars, Node, Repeat, Seq

MAX_COMPARED = 40_000  # pairs of lexemes over all rounds; then everything is cut to characters
MAX_RULES = 100_000
MAX_LEXEME = 2_000  # nodes of a rule that becomes part of a lexeme
MANY_RULES = 500
MAX_DEEP = 100


def lark_of(source: str) -> str:
    """The engine's grammar text for an EBNF grammar."""
    rules = parse(source)
    if len(rules) > MAX_RULES:
        raise GrammarError(f"the EBNF grammar has {len(rules)} rules; at most {MAX_RULES} fit")
    regular = _regular_rules(rules)
    try:
        size = sizes(regular)
        limit = MAX_LEXEME if len(rules) < MANY_RULES else MAX_LEXEME // 20
        whole = inlined(Ref(ROOT), regular) if size.get(ROOT, (0, MAX_DEEP))[1] < MAX_DEEP else None
    except TooLarge:
        whole = None
    if whole is not None:
        return _one_lexeme(whole)
    small = {
        name: node for name, node in regular.items()
        if size[name][0] <= limit and size[name][1] < MAX_DEEP
    }  # fmt: skip
    compared, cut = 0, set()
    while True:
        writer = _Writer(rules, small, cut)
        text = writer.text()
        compared += len(writer.lexemes) ** 2
        bad = writer.unsafe() if compared <= MAX_COMPARED else set(writer.lexemes)
        bad = {node for node in bad if not isinstance(node, Chars)}
        if not bad:
            return text
        assert bad - cut, "a lexeme was cut and is still there"
        cut |= bad


def _one_lexeme(node: Node) -> str:
    if engine.is_void(node):
        raise GrammarError(f"EBNF grammar: no text can be derived from `{ROOT}`")
    if tree.shortest(node) == 0 and not tree.has_any(node, Chars):
        return 'start: ""\n'
    return f"start: T\nT: {spell.lark(node, spell.Spelling.TEXT)}\n"


def _regular_rules(rules: Rules) -> Rules:
    """Rules from which no recursion is reached; those that only repeat at one end count too."""
    regular: Rules = {}
    for component, is_recursive in components(rules):
        if len(component) > 1:
            continue
        (name,) = component
        body = linear_form(name, rules[name]) if is_recursive else rules[name]
        if body is not None and all(used in regular for used in references(body)):
            regular[name] = body
    return regular


def references(node: Node | Ref) -> Iterator[str]:
    """Names of the rules that a tree uses."""
    match node:
        case Ref(name):
            yield name
        case Seq(items) | Alt(items):
            for item in items:
                yield from references(item)
        case Repeat(item, _, _):
            yield from references(item)


class _Writer:
    """One attempt, with the lexemes of `cut` taken apart."""

    def __init__(self, rules: Rules, regular: Rules, cut: set[Node]) -> None:
        self.rules, self.regular, self.cut = rules, regular, cut
        self.lark = Lark()
        self.names: dict[str, str] = {}
        self.lexemes: dict[Node, str] = {}
        self._inlined: dict[str, Node | None] = {}

    def text(self) -> str:
        for name in self.rules:
            self.names[name] = self.lark.new_name()
        for name, node in self.rules.items():
            self.lark.rules[self.names[name]] = self._alternatives(node)
        text = self.lark.text(self.names[ROOT])
        if text is None:
            raise GrammarError(
                f"EBNF grammar: no text can be derived from `{ROOT}`\n\n"
                "hint: a recursive rule needs an alternative that ends"
            )
        return text

    def _pure(self, node: Node | Ref) -> Node | None:
        """The tree when it is regular and not too large."""
        match node:
            case Ref(name):
                if name not in self._inlined:
                    self._inlined[name] = None
                    if name in self.regular:
                        try:
                            self._inlined[name] = inlined(node, self.regular)
                        except TooLarge:
                            pass
                return self._inlined[name]
            case Chars():
                return node
            case Seq(items) | Alt(items):
                parts = [self._pure(item) for item in items]
                return None if None in parts else type(node)(tuple(parts))
            case Repeat(item, low, high):
                inner = self._pure(item)
                return None if inner is None else Repeat(inner, low, high)
        return None

    def _alternatives(self, node: Node | Ref) -> list[Sequence]:
        if isinstance(node, Alt) and self._whole(node) is None:
            regular = [p for item in node.items if (p := self._whole(item)) is not None]
            is_joint = len(regular) > 1 and tree.either(*regular) not in self.cut
            found = [self._lexeme(tree.either(*regular))] if is_joint else []
            for item in node.items:
                if not is_joint or self._whole(item) is None:
                    found += self._alternatives(item)
            return found
        return [self._sequence(node)]

    def _whole(self, node: Node | Ref) -> Node | None:
        """The tree of a lexeme that is not to be cut."""
        pure = self._pure(node)
        return None if pure is None or pure in self.cut else pure

    def _sequence(self, node: Node | Ref) -> Sequence:
        pure = self._whole(node)
        if pure is not None:
            return self._lexeme(pure)
        match node:
            case Ref(name):
                return (Symbol(self.names[name]),)
            case Seq(items):
                return self._joined(items)
            case Repeat(item, low, high):
                inner = self._sequence(item)
                if len(inner) != 1 or (inner[0].low, inner[0].high) != (1, 1):
                    inner = (Symbol(self.lark.rule(inner)),)
                return (Symbol(inner[0].name, low, high),)
            case Alt():
                return (Symbol(self.lark.rule(*self._alternatives(node))),)
        raise AssertionError(node)

    def _joined(self, items: tuple[Node, ...]) -> Sequence:
        """Regular neighbours become one lexeme, unless it was cut."""
        found: list[Symbol] = []
        run: list[Node] = []

        def flush() -> None:
            if not run:
                return
            whole = run[0] if len(run) == 1 else Seq(tuple(run))
            parts = [whole] if whole not in self.cut else run
            for part in parts:
                found.extend(self._sequence(part))
            run.clear()

        for item in items:
            pure = self._whole(item)
            if pure is None:
                flush()
                found.extend(self._sequence(item))
            else:
                run.append(pure)
        flush()
        return tuple(found)

    def _lexeme(self, node: Node) -> Sequence:
        """Lexemes are never empty: one that may be is left out instead."""
        if not tree.has_any(node, Chars):
            return () if tree.is_nullable(node) else (Symbol(self.lark.new_name()),)
        body = spell.lark(node, spell.Spelling.TEXT)
        is_nullable = tree.is_nullable(node)
        name = self.lark.terminal(f"({body} & /(?s:.+)/)" if is_nullable else body)
        self.lexemes[node] = name
        return (Symbol(name, 0 if is_nullable else 1, 1),)

    # ---- which lexemes could be read too far

    def unsafe(self) -> set[Node]:
        automata: dict[str, Automaton] = {}
        nodes = {name: node for node, name in self.lexemes.items()}
        found: set[Node] = set()
        for node, name in self.lexemes.items():
            try:
                automata[name] = automaton(node)
            except TooLarge:
                found.add(node)
        following = _following(self.lark, {name: one.first() for name, one in automata.items()})
        for name, one in automata.items():
            for other_name, other in automata.items():
                try:
                    is_fine = is_safe(one, following.get(name, ()), other)
                except TooLarge:
                    is_fine = False
                if not is_fine:
                    # The one that reads too far; of a single character it cannot be.
                    is_atom = isinstance(nodes[other_name], Chars)
                    found.add(nodes[name] if is_atom else nodes[other_name])
        return found


def _following(lark: Lark, firsts: dict[str, CharSet]) -> dict[str, CharSet]:
    """For each symbol, the characters that may come right after it."""
    first: dict[str, CharSet] = dict(firsts)
    nullable: set[str] = set()
    changed = True
    while changed:
        changed = False
        for name, alternatives in lark.rules.items():
            chars, is_empty = _first_of(alternatives, first, nullable)
            if chars != first.get(name, ()) or (is_empty and name not in nullable):
                first[name] = chars
                nullable |= {name} if is_empty else set()
                changed = True
    follow: dict[str, CharSet] = {}
    changed = True
    while changed:
        changed = False
        for name, alternatives in lark.rules.items():
            for sequence in alternatives:
                after = follow.get(name, ())
                for symbol in reversed(sequence):
                    repeats = symbol.high is None or symbol.high > 1
                    mine = charset.union(after, first.get(symbol.name, ()) if repeats else ())
                    grown = charset.union(follow.get(symbol.name, ()), mine)
                    if grown != follow.get(symbol.name, ()):
                        follow[symbol.name] = grown
                        changed = True
                    is_skipped = symbol.low == 0 or symbol.name in nullable
                    own = first.get(symbol.name, ())
                    after = charset.union(own, after) if is_skipped else own
    return follow


def _first_of(
    alternatives: list[Sequence], first: dict[str, CharSet], nullable: set[str]
) -> tuple[CharSet, bool]:
    chars: CharSet = ()
    is_nullable = False
    for sequence in alternatives:
        for symbol in sequence:
            chars = charset.union(chars, first.get(symbol.name, ()))
            if symbol.low and symbol.name not in nullable:
                break
        else:
            is_nullable = True
    return chars, is_nullable
