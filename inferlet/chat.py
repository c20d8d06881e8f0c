"""The model's own chat template, one turn at a time, and the decoder of a reply.

Fillers are stateless: the concatenation of fillers for a history is the template's rendering of it.
"""

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from inferlet import formats, naming
from inferlet.runtime import handles
from inferlet.runtime.cells import integers
from inferlet.runtime.tokenizer import check_text

__all__ = [
    "Decoder", "Event", "assistant", "cue", "cue_thinking", "cue_without_thinking", "first_user",
    "prefix", "seal", "stop_tokens", "system", "system_thinking", "system_user", "user",
]  # fmt: skip


def _format() -> formats.Turns:
    return formats.of(handles.current().vocabulary)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`chat.{what}` got {naming.kind(value)}; it takes a str")
    check_text(value)
    return value


def prefix() -> list[int]:
    """`[bos]` when the model starts sequences with a BOS token, else `[]`."""
    return formats.prefix(handles.current().vocabulary)


def system(text: str) -> list[int]:
    """One complete system turn, with everything that the template emits before it."""
    return _format().system(_text(text, "system"))


def system_user(system: str, user: str) -> list[int]:
    """The opening pair."""
    return _format().system_user(_text(system, "system_user"), _text(user, "system_user"))


def first_user(text: str) -> list[int]:
    """The first user turn when there is no system turn, with a default one if there is any."""
    return _format().first_user(_text(text, "first_user"))


def user(text: str) -> list[int]:
    """A later user turn."""
    return _format().user(_text(text, "user"))


def assistant(text: str) -> list[int]:
    """A finished assistant turn, for replaying a history."""
    return _format().assistant(_text(text, "assistant"))


def system_thinking(text: str, effort: str) -> list[int]:
    """A system turn that states a reasoning effort."""
    return _format().system_thinking(_text(text, "system_thinking"), effort)


def cue() -> list[int]:
    """Start of the assistant's reply, up to where generation begins."""
    return _format().cue()


def cue_without_thinking() -> list[int]:
    """Start of a reply that must not think."""
    return _format().cue_without_thinking()


def cue_thinking(on: bool) -> list[int]:
    """Start of a reply that thinks, where the template has a toggle; or of one that must not."""
    return _format().cue_thinking(on)


def seal() -> list[int]:
    """The exact suffix that the template emits after an assistant message."""
    return _format().seal()


def stop_tokens() -> list[int]:
    """Ids any of which ends a reply, or the text of a model without a chat template."""
    return formats.stop_tokens(handles.current().vocabulary)


class Event:
    """What `Decoder.feed` returns: exactly one of these."""

    @dataclass(frozen=True)
    class Idle:
        """No new text."""

    @dataclass(frozen=True)
    class Delta:
        """New text."""

        text: str

    @dataclass(frozen=True)
    class Done:
        """The reply has ended; `text` is all of it."""

        text: str

    @dataclass(frozen=True)
    class Interrupt:
        """A control token that has no text and does not end the reply."""

        token: int


AnyEvent = Event.Idle | Event.Delta | Event.Done | Event.Interrupt


class Decoder:
    """Detokenizes a reply as it comes. Bytes of an unfinished character are held back."""

    def __init__(self) -> None:
        self._vocabulary = handles.current().vocabulary
        self._stops = frozenset(stop_tokens())
        self.reset()

    def reset(self) -> None:
        """Starts a new reply."""
        self._waiting: deque[int] = deque()  # behind an Interrupt: for the next feed
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._is_done = False

    def feed(self, tokens: Sequence[int]) -> AnyEvent:
        """One event for the tokens. After `Done`, everything is `Idle` until `reset`."""
        tokens = integers(tokens, "`tokens`")
        if min(tokens, default=0) < 0:
            raise ValueError(f"token id {min(tokens)} is negative")
        if self._is_done:
            return Event.Idle()
        self._waiting.extend(tokens)
        fresh: list[str] = []
        while self._waiting:
            token = self._waiting[0]
            if token in self._stops:
                return self._finish()
            piece = self._bytes_of(token)
            if piece is None and any(fresh):
                break  # its turn comes with the next feed
            self._waiting.popleft()
            if piece is None:
                return Event.Interrupt(token)
            fresh.append(self._utf8.decode(piece))
            self._pieces.append(fresh[-1])
        text = "".join(fresh)
        return Event.Delta(text) if text else Event.Idle()

    def _bytes_of(self, token: int) -> bytes | None:
        """None for a control token, and for an id that has no spelling."""
        if token in self._vocabulary.special:
            return None
        return self._vocabulary.token_bytes(token)

    def _finish(self) -> Event.Done:
        self._is_done = True
        self._waiting.clear()
        self._pieces.append(self._utf8.decode(b"", final=True))
        return Event.Done("".join(self._pieces))
