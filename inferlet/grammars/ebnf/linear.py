"""Which rules are recursive, and the recursion that is a repetition: `ws ::= (" " ws)?`."""

from inferlet.grammars.ebnf.automaton import TooLarge
from inferlet.grammars.ebnf.parse import Ref, Rules
from inferlet.grammars.regex import tree
from inferlet.grammars.regex.tree import Alt, Node, Repeat, Seq

MAX_INLINED = 20_000  # nodes of one lexeme


def components(rules: Rules) -> list[tuple[set[str], bool]]:
    """Rules that use each other, and whether they are recursive; what is used comes first.

    Tarjan's algorithm, without recursion of its own.
    """
    from inferlet.grammars.ebnf.rules import references

    edges = {name: list(dict.fromkeys(references(node))) for name, node in rules.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[tuple[set[str], bool]] = []
    for root in rules:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges[other])))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component = set()
                    while name not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    found.append((component, len(component) > 1 or name in edges[name]))
    return found


def linear_form(name: str, node: Node | Ref) -> Node | None:
    """The rule without its recursion when that is at one end of alternatives; else None."""
    from inferlet.grammars.ebnf.rules import references

    steps: dict[bool, list[Node]] = {True: [], False: []}  # by whether the rule comes first
    ends: list[Node] = []
    for sequence in _alternatives(node):
        uses = [item for item in sequence if name in references(item)]
        if not uses:
            ends.append(tree.sequence(*sequence))
        elif uses != [Ref(name)] or sequence == (Ref(name),):
            if sequence != (Ref(name),):
                return None
        elif sequence[-1] == Ref(name):
            steps[False].append(tree.sequence(*sequence[:-1]))
        elif sequence[0] == Ref(name):
            steps[True].append(tree.sequence(*sequence[1:]))
        else:
            return None
    if (steps[True] and steps[False]) or not ends:
        return None
    is_left = bool(steps[True])
    loop = Repeat(tree.either(*steps[is_left]), 0, None) if steps[is_left] else tree.EMPTY
    end = tree.either(*ends)
    return Seq((end, loop)) if is_left else Seq((loop, end))


def _alternatives(node: Node | Ref) -> list[tuple[Node | Ref, ...]]:
    match node:
        case Alt(items):
            return [sequence for item in items for sequence in _alternatives(item)]
        case Repeat(item, 0, 1):
            return [*_alternatives(item), ()]
        case Seq(items):
            return [items]
    return [(node,)]


def sizes(regular: Rules) -> dict[str, tuple[int, int]]:
    """Nodes and depth of each rule with all references replaced; used rules come first."""
    found: dict[str, tuple[int, int]] = {}

    def visit(part: Node | Ref) -> tuple[int, int]:
        match part:
            case Ref(name):
                return found[name]
            case Seq(items) | Alt(items):
                inner = [visit(item) for item in items] or [(0, 0)]
                return 1 + sum(size for size, _ in inner), 1 + max(deep for _, deep in inner)
            case Repeat(item, _, _):
                size, deep = visit(item)
                return 1 + size, 1 + deep
        return 1, 1

    for name, node in regular.items():
        found[name] = visit(node)
    return found


def inlined(node: Node | Ref, regular: Rules) -> Node:
    """The tree with every reference replaced; TooLarge when that would be large."""
    size = 0

    def visit(part: Node | Ref) -> Node:
        nonlocal size
        size += 1
        if size > MAX_INLINED:
            raise TooLarge
        match part:
            case Ref(name):
                return visit(regular[name])
            case Seq(items):
                return tree.sequence(*(visit(item) for item in items))
            case Alt(items):
                return Alt(tuple(visit(item) for item in items))
            case Repeat(item, low, high):
                return Repeat(visit(item), low, high)
        return part

    try:
        return visit(node)
    except RecursionError:
        raise TooLarge from None
