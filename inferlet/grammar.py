"""Grammars limit what a generation may say; matchers track one generation, token by token."""

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inferlet import chat, naming
from inferlet.errors import GrammarError
from inferlet.grammars import compile as compiler
from inferlet.grammars import engine
from inferlet.grammars.explain import explain
from inferlet.runtime import handles
from inferlet.runtime.cells import integer, integers

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from inferlet.runtime.tokenizer import Vocabulary

__all__ = ["Grammar", "GrammarError", "Matcher"]

MAX_FORCED = 64  # tokens that are looked at ahead
MAX_SHARED = 128  # compiled grammars that are kept for their source to come again
_shared: "weakref.WeakKeyDictionary[Vocabulary, OrderedDict[tuple[str, str], Grammar]]"
_shared = weakref.WeakKeyDictionary()


class Grammar:
    """A language, compiled for the model's vocabulary. Made by the constructors below."""

    def __init__(
        self, kind: str, source: str, text: str, start: "LLMatcher", has_special: bool = False
    ) -> None:
        """`text`: the engine's grammar. `start`: a matcher that is only ever copied."""
        self._kind, self._source, self._text, self._start = kind, source, text, start
        self._has_special = has_special

    def __repr__(self) -> str:
        source = self._source if len(self._source) <= 60 else self._source[:57] + "…"
        return f"<Grammar {self._kind} {source}>"

    @classmethod
    def json(cls) -> "Grammar":
        """One JSON value of any type."""
        return shared("JSON schema", "true", compiler.from_json_schema)

    @classmethod
    def from_json_schema(cls, s: str | dict | bool) -> "Grammar":
        """JSON values that satisfy the schema, which is JSON text or an equal dict or bool."""
        return shared("JSON schema", compiler.canonical_schema(s), compiler.from_json_schema)

    @classmethod
    def from_regex(cls, p: str) -> "Grammar":
        """Texts that `p` matches as a whole."""
        return shared("regex", _text(p, "from_regex"), compiler.from_regex)

    @classmethod
    def from_ebnf(cls, g: str) -> "Grammar":
        """Texts of the rule `root`."""
        return shared("EBNF grammar", _text(g, "from_ebnf"), compiler.from_ebnf)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`Grammar.{what}` got {naming.kind(value)}; it takes a str")
    return value


def shared(
    kind: str, source: str, to_lark: Callable[[str], str], *, has_special: bool = False
) -> Grammar:
    """Equal sources share one compiled object. `has_special`: its text names special tokens."""
    vocabulary = handles.current().vocabulary
    kept = _shared.setdefault(vocabulary, OrderedDict())
    known = kept.get((kind, source))
    if known is None:
        text = to_lark(source)
        start = engine.compile_lark(text, vocabulary, kind)
        known = Grammar(kind, source, text, start, has_special)
        kept[kind, source] = known
        if len(kept) > MAX_SHARED:
            kept.popitem(last=False)
    else:
        kept.move_to_end((kind, source))
    return known


def stop_ids() -> frozenset[int]:
    """The ids that end a reply."""
    return frozenset(chat.stop_tokens())


class Matcher:
    """One generation from its start."""

    def __init__(self, grammar: Grammar) -> None:
        if not isinstance(grammar, Grammar):
            raise TypeError(f"`Matcher` got {naming.kind(grammar)}; it takes a Grammar")
        runtime = handles.current()
        self._grammar = grammar
        self._words = -(-runtime.model.output_vocab_size // 32)
        self._width = runtime.model.output_vocab_size
        self._vocabulary = runtime.vocabulary
        self._size = engine.size_of(runtime.vocabulary)
        self._textless = engine.textless(runtime.vocabulary)
        if grammar._has_special:  # the engine knows which of them may come
            self._textless -= runtime.vocabulary.special
        self._stops = stop_ids()
        self.reset()

    def __repr__(self) -> str:
        return f"<Matcher of {self._grammar!r} after {len(self._history)} tokens>"

    def reset(self) -> None:
        """Back to the start; the history is cleared."""
        self._engine = self._grammar._start.deep_copy()
        self._history: list[int] = []
        self._is_stopped = False
        self._packed: list[int] | None = None

    def fork(self) -> "Matcher":
        """An independent copy, undo history included."""
        twin = object.__new__(Matcher)
        twin.__dict__.update(self.__dict__)
        twin._engine = self._engine.deep_copy()
        twin._history = self._history.copy()
        return twin

    def mask(self) -> list[int]:
        """Tokens allowed next, packed. A stop token is allowed iff the text is complete."""
        if self._packed is None:
            self._packed = self._compute()
        return self._packed.copy()

    def accept_tokens(self, tokens: Sequence[int]) -> None:
        """Advances by all ids in order, or by none: GrammarError names the first forbidden one."""
        ids = integers(tokens, "`tokens`")
        end = next((i for i, token in enumerate(ids) if token in self._stops), len(ids))
        text = ids[:end]
        if ids and self._is_stopped:
            raise self._forbidden(ids, 0, "comes after a stop token")
        legal = next((i for i, token in enumerate(text) if not self._is_text(token)), end)
        count = self._engine.validate_tokens(text[:legal]) if legal else 0
        self._check()
        if count < end:
            raise self._forbidden(ids, count, "is not allowed here")
        if text:
            self._consume(text)
        if end < len(ids):
            if not self._engine.is_accepting() or end + 1 < len(ids):
                is_early = not self._engine.is_accepting()
                self._undo(len(text))
                if is_early:
                    raise self._forbidden(ids, end, "is a stop token, and the text is not complete")
                raise self._forbidden(ids, end + 1, "comes after a stop token")
            self._is_stopped = True
        self._history += ids
        self._packed = None

    def is_terminated(self) -> bool:
        """After a stop token, or when the text is complete and nothing but a stop may follow."""
        if self._is_stopped:
            return True
        if not self._is_complete():
            return False
        packed = self.mask()
        for stop in self._stops:
            if stop >> 5 < len(packed):
                packed[stop >> 5] &= ~(1 << (stop & 31))
        return not any(packed)

    def rollback(self, n: int) -> None:
        """Undoes the last `n` accepted tokens."""
        n = integer(n, "`n`")
        if not 0 <= n <= len(self._history):
            raise ValueError(
                f"`rollback({n})`, but {len(self._history)} tokens were accepted since the start "
                "or the last reset"
            )
        if n == 0:
            return
        self._undo(n - self._is_stopped)
        self._is_stopped = False
        del self._history[-n:]
        self._packed = None

    def forced_tokens(self) -> list[int]:
        """Tokens whose text is the only one that can follow; they are not accepted by this."""
        if self._is_stopped:
            return []
        if self._grammar._has_special:
            return self._only_tokens()
        self._engine.compute_ff_bytes()  # without it, the engine may know of no tokens yet
        forced = self._engine.compute_ff_tokens()
        end = next((i for i, token in enumerate(forced) if not self._is_text(token)), len(forced))
        return forced[: self._engine.validate_tokens(forced[:end])] if end else []

    def _only_tokens(self) -> list[int]:
        """The same by masks: the engine itself fails where a special token is forced."""
        ahead, found = self.fork(), []
        while len(found) < MAX_FORCED:
            legal = ahead._legal()
            if len(legal) != 1 or legal[0] in self._stops:
                break
            ahead.accept_tokens(legal)
            found += legal
        return found

    def explain(self) -> str:
        """What is expected here, in words."""
        if self._is_stopped:
            return "nothing: a stop token was accepted"
        text = b"".join(self._vocabulary.token_bytes(token) or b"" for token in self._history)
        kind, source = self._grammar._kind, self._grammar._source
        return explain(text, self._next_bytes(), self._is_complete(), kind, source)

    def _next_bytes(self) -> set[int]:
        """First bytes of the tokens that may come."""
        legal = set(self._legal()) - self._stops
        return {self._vocabulary.token_bytes(token)[0] for token in legal if self._is_text(token)}

    def _legal(self) -> list[int]:
        """The tokens of the mask."""
        found = []
        for index, word in enumerate(self.mask()):
            while word:
                low = word & -word
                found.append(32 * index + low.bit_length() - 1)
                word ^= low
        return found

    def _is_text(self, token: int) -> bool:
        return 0 <= token < self._size and token not in self._textless

    def _is_complete(self) -> bool:
        return self._engine.is_accepting()

    def _compute(self) -> list[int]:
        if self._is_stopped:
            return [0] * self._words
        packed = array("I", self._engine.compute_bitmask())
        self._check()
        # The engine's own end token lies just past the vocabulary.
        packed[self._size >> 5] &= ~(1 << (self._size & 31)) & 0xFFFFFFFF
        words = packed.tolist()[: self._words]
        words += [0] * (self._words - len(words))
        is_complete = self._engine.is_accepting()
        for stop in self._stops:
            if stop < self._width:
                bit = 1 << (stop & 31)
                words[stop >> 5] = (
                    words[stop >> 5] | bit if is_complete else words[stop >> 5] & ~bit
                )
        if self._width & 31:
            words[-1] &= (1 << (self._width & 31)) - 1
        return words

    def _consume(self, text: list[int]) -> None:
        count = self._engine.try_consume_tokens(text)
        self._check()
        assert count == len(text), "the engine took back what it had promised"

    def _undo(self, count: int) -> None:
        if count and not self._engine.rollback(count):
            self._check()

    def _check(self) -> None:
        """When the engine gave up, this matcher stays where it was."""
        try:
            engine.check(self._engine, self._grammar._kind)
        except GrammarError:
            self._engine = self._grammar._start.deep_copy()
            self._engine.try_consume_tokens([t for t in self._history if t not in self._stops])
            raise

    def _forbidden(self, ids: list[int], index: int, why: str) -> GrammarError:
        token = ids[index]
        spelling = self._vocabulary.token_bytes(token) if token >= 0 else None
        shown = repr(spelling.decode("utf-8", "replace")) if spelling else "no text"
        return GrammarError(
            f"token {token} ({shown}) at index {index} {why}\n\n"
            f"hint: {self._grammar!r} expects {self.explain()}"
        )
