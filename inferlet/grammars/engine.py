"""The engine, llguidance: its tokenizer, compiled grammars, and limits on what both may cost.

It runs in the inferlet's own process, without threads. What it may spend is bounded here, so that
a hostile grammar is an error and nothing worse.
"""

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from inferlet.errors import GrammarError
from inferlet.grammars.regex import spell, tree

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from inferlet.runtime.tokenizer import Vocabulary

# Of the engine: fuel is its own unit of work, about 14,000 to 50,000 of it take a millisecond.
LIMITS = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 50_000_000,
    "step_lexer_fuel": 2_000_000,
    "step_max_items": 200_000,
    "max_lexer_states": 100_000,
    "max_grammar_size": 1_000_000,
    "precompute_large_lexemes": False,
    "verbose_errors": False,
}
# Many small questions are asked about the patterns of one schema.
QUICK = {**LIMITS, "initial_lexer_fuel": 10_000_000}
# Forced bytes are not turned into one tokenization: every one of them is allowed.
OPTIONS = '%llguidance {"no_forcing": true}\n'
MAX_SOURCE = 8 * 2**20  # characters of grammar text
_BYTES = 256

_tokenizers: "weakref.WeakKeyDictionary[Vocabulary, LLTokenizer]" = weakref.WeakKeyDictionary()


class _Words:
    """A vocabulary as the engine reads it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], end: int, encode: Callable) -> None:
        self._encode = encode
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = end

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def tokenizer_of(vocabulary: "Vocabulary") -> "LLTokenizer":
    """The engine's form of a vocabulary, made once. Special tokens match no text."""
    known = _tokenizers.get(vocabulary)
    if known is None:
        count = vocabulary.tokenizer.get_vocab_size(with_added_tokens=True)
        count = max([count, *(number + 1 for number in vocabulary.special)])
        tokens = [vocabulary.token_bytes(number) or b"" for number in range(count)]
        special = sorted(vocabulary.special)
        known = _tokenizers[vocabulary] = _tokenizer(tokens, special, vocabulary.encode)
    return known


def _tokenizer(tokens: list[bytes], special: list[int], encode: Callable) -> "LLTokenizer":
    """The engine wants an end token; ours is one past the vocabulary, so no stop is ever text."""
    from llguidance import LLTokenizer

    end = len(tokens)
    words = _Words([*tokens, b"<end>"], [*special, end], end, encode)
    return LLTokenizer(words, n_vocab=end + 1, eos_token=end, slices=LLTokenizer.json_slices())


@functools.cache
def _byte_tokenizer() -> "LLTokenizer":
    words = [bytes([byte]) for byte in range(_BYTES)]
    return _tokenizer(words, [], lambda text: list(text.encode()))


def compile_lark(text: str, vocabulary: "Vocabulary", what: str) -> "LLMatcher":
    """A matcher at the start of the grammar; GrammarError when the engine refuses it."""
    if len(text) > MAX_SOURCE:
        raise GrammarError(f"the {what} is too large: its grammar has {len(text)} characters")
    return _matcher(text, tokenizer_of(vocabulary), what)


def _matcher(text: str, tokenizer: "LLTokenizer", what: str) -> "LLMatcher":
    found = _new_matcher(text, tokenizer)
    check(found, what)
    return found


def _new_matcher(
    text: str, tokenizer: "LLTokenizer", limits: dict[str, int] = LIMITS
) -> "LLMatcher":
    from llguidance import LLMatcher, LLParserLimits

    source = LLMatcher.grammar_from_lark(OPTIONS + text)
    return LLMatcher(tokenizer, source, log_level=0, limits=LLParserLimits(**limits))


def check(matcher: "LLMatcher", what: str) -> None:
    """GrammarError when the engine gave up on a grammar."""
    if matcher.is_error():
        reason = matcher.get_error().strip().splitlines()[0][:300]
        if reason == "NoExtensionBias":
            raise GrammarError(f"no text satisfies the {what}")
        if reason.startswith("panic"):
            reason = "it is too large"
        raise GrammarError(
            f"the {what} is beyond what can be matched: {reason}\n\n"
            "hint: use smaller counts, fewer alternatives or simpler patterns"
        )


@functools.lru_cache(maxsize=1024)
def is_void(node: tree.Node) -> bool:
    """Whether no text matches a regular language."""
    body = spell.lark(node, spell.Spelling.TEXT)
    if tree.has_any(node, (tree.Both, tree.Not)):
        body = f"({body}) & /(?s:.*)/"
    matcher = _new_matcher(f"start: T\nT: {body}\n", _byte_tokenizer(), QUICK)
    if matcher.stop_reason() != "NoExtensionBias":  # which says that nothing can ever come
        check(matcher, "pattern")
    return not matcher.is_accepting() and not any(matcher.compute_bitmask()[: _BYTES // 8])


def size_of(vocabulary: "Vocabulary") -> int:
    """Ids below this may have text."""
    return tokenizer_of(vocabulary).vocab_size - 1  # without the end token of ours


_textless: "weakref.WeakKeyDictionary[Vocabulary, frozenset[int]]" = weakref.WeakKeyDictionary()


def textless(vocabulary: "Vocabulary") -> frozenset[int]:
    """Ids that never match text: special tokens, and ids without a spelling."""
    known = _textless.get(vocabulary)
    if known is None:
        empty = (n for n in range(size_of(vocabulary)) if not vocabulary.token_bytes(n))
        known = _textless[vocabulary] = vocabulary.special | frozenset(empty)
    return known


def warm(vocabulary: "Vocabulary") -> None:
    """Everything that can be shared by inferlets that are forked later."""
    textless(vocabulary)
    _byte_tokenizer()
