"""The three sources of grammars, each to the engine's grammar text or a GrammarError."""

import functools
from collections.abc import Callable

from inferlet.errors import GrammarError
from inferlet.grammars import engine
from inferlet.grammars.ebnf.rules import lark_of
from inferlet.grammars.lark import Lark
from inferlet.grammars.regex import spell, tree, whole
from inferlet.grammars.regex.parse import shorten
from inferlet.grammars.schema.document import Document, canonical, load
from inferlet.grammars.schema.expand import Expander
from inferlet.grammars.schema.rules import Rules

MAX_SOURCE = 8 * 2**20

canonical_schema = canonical


def _shallow(to_lark: Callable[[str], str]) -> Callable[[str], str]:
    """What is nested too deeply for us is the user's error, not a crash."""

    @functools.wraps(to_lark)
    def guarded(source: str) -> str:
        try:
            return to_lark(source)
        except RecursionError:
            raise GrammarError(
                f"{shorten(source)} is nested too deeply\n\nhint: use fewer levels"
            ) from None

    return guarded


@_shallow
def from_json_schema(source: str) -> str:
    """JSON text that satisfies the schema."""
    _check_size(source, "schema")
    lark = Lark()
    start = add_json_schema(lark, source)
    text = start and lark.text(start)
    if not text:
        raise GrammarError(
            f"schema {shorten(source)}: no value satisfies it\n\n"
            "hint: look for limits that exclude each other, or an empty `enum`"
        )
    return text


def add_json_schema(lark: Lark, source: str) -> str | None:
    """The symbol of the schema's values in a larger grammar; None when no value satisfies it."""
    document = Document(load(source), source)
    rules = Rules(document, lark, Expander(document, engine.is_void))
    return rules.add(((document.root, True),))


@_shallow
def from_regex(source: str) -> str:
    """Texts that the regex matches as a whole: one terminal."""
    _check_size(source, "regex")
    node = whole.plain(source)
    if engine.is_void(node):
        raise GrammarError(f"regex {shorten(source)}: no text matches it")
    if not tree.has_any(node, tree.Chars):
        return 'start: ""\n'
    return f"start: T\nT: {spell.lark(node, spell.Spelling.TEXT)}\n"


@_shallow
def from_ebnf(source: str) -> str:
    """Texts of the rule `root`."""
    _check_size(source, "EBNF grammar")
    return lark_of(source)


def _check_size(source: str, what: str) -> None:
    if len(source) > MAX_SOURCE:
        raise GrammarError(f"the {what} has {len(source)} characters; at most {MAX_SOURCE} fit")
