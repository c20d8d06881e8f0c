"""The decoder of a reply's reasoning: the text between the model's think markers."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferlet import chat
from inferlet.formats import thinking
from inferlet.formats.calls.source import held_from
from inferlet.formats.stream import TextStream, without_stand_ins
from inferlet.runtime import handles
from inferlet.runtime.cells import integers

__all__ = ["Decoder", "Event"]


class Event:
    """What `Decoder.feed` returns: exactly one of these."""

    @dataclass(frozen=True)
    class Idle:
        """Nothing to report."""

    @dataclass(frozen=True)
    class Start:
        """A block of reasoning opened."""

    @dataclass(frozen=True)
    class Delta:
        """New reasoning text."""

        text: str

    @dataclass(frozen=True)
    class End:
        """The block closed; `text` is all of it."""

        text: str


AnyEvent = Event.Idle | Event.Start | Event.Delta | Event.End


class Decoder:
    """Tells reasoning from content. It is fed the same tokens as `chat.Decoder`."""

    def __init__(self) -> None:
        """As for a reply to `chat.cue()`."""
        vocabulary = handles.current().vocabulary
        markers = thinking.markers_of(vocabulary)
        self._start(chat.cue() if markers else [])

    @classmethod
    def for_cue(cls, cue: Sequence[int]) -> "Decoder":
        """For a reply to `cue`, which may have opened or closed a block already."""
        decoder = object.__new__(cls)
        decoder._start(integers(cue, "`cue`"))
        return decoder

    def _start(self, cue: Sequence[int]) -> None:
        vocabulary = handles.current().vocabulary
        self._stream = TextStream(vocabulary, thinking.markers_of(vocabulary) or ())
        self._markers = self._stream.markers
        text = _checked(self._stream, cue)
        places = [text.rfind(marker) for marker in self._markers]
        self._starts_inside = bool(places) and places[0] > places[1]
        self.reset()

    def reset(self) -> None:
        """Back to the constructed state."""
        self._stream.reset()
        self._is_inside = self._starts_inside
        self._text = ""  # what no event has reported
        self._block: list[str] = []

    def feed(self, tokens: Sequence[int]) -> AnyEvent:
        """One event. What comes after it is kept for the next feed."""
        fresh = _checked(self._stream, integers(tokens, "`tokens`"))
        if not self._markers:
            return Event.Idle()
        self._text += fresh
        return self._inside(self._markers[1]) if self._is_inside else self._outside()

    def _outside(self) -> AnyEvent:
        marker = self._markers[0]
        before, found, after = self._text.partition(marker)
        if not found:
            self._text = before[held_from(before, (marker,)) :]
            return Event.Idle()
        self._text, self._is_inside, self._block = after, True, []
        return Event.Start()

    def _inside(self, marker: str) -> AnyEvent:
        end = self._text.find(marker)
        if end == 0:
            self._text, self._is_inside = self._text[len(marker) :], False
            return Event.End("".join(self._block))
        end = end if end > 0 else held_from(self._text, (marker,))
        fresh, self._text = without_stand_ins(self._text[:end]), self._text[end:]
        self._block.append(fresh)
        if fresh:
            return Event.Delta(fresh)
        # Only control tokens came before the marker.
        return self._inside(marker) if self._text.startswith(marker) else Event.Idle()


def _checked(stream: TextStream, tokens: Sequence[int]) -> str:
    if min(tokens, default=0) < 0:
        raise ValueError(f"token id {min(tokens)} is negative")
    return stream.feed(tokens)
