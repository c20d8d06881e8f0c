"""What all markups share: the walk from marker to marker, equal for every way of cutting a reply.

A markup decides by the text up to some character alone. So a decision never depends on how much
text came after it, and any chunking gives the same calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Schemas = Mapping[str, Mapping[str, Any]]  # the declared `parameters` of each function


@dataclass(frozen=True)
class Call:
    """One complete tool call; `arguments_json` is compact JSON text of an object."""

    name: str
    arguments_json: str


class Step(NamedTuple):
    """What one look at a reply gave."""

    calls: tuple[Call, ...]
    used: int  # characters that will never matter again
    is_inside: bool = False


class Found(NamedTuple):
    """Complete calls, and where their markup ends."""

    calls: tuple[Call, ...]
    end: int


class More:
    """The text so far may be the start of a call."""


class Broken:
    """No text that may follow makes this a call."""


Verdict = Found | More | Broken


class Markup(ABC):
    """A call markup: openers, and `read`, which judges the text behind one of them."""

    openers: tuple[str, ...] = ()
    enders = ">"  # only text with one of these characters can complete a call

    def scan(self, text: str, schemas: Schemas) -> Step:
        """The first calls of the text. Broken markup is skipped, and the search goes on in it."""
        start = 0
        while True:
            at, opener = first_of(text, self.openers, start)
            if not opener:
                return Step((), held_from(text, self.openers, start))
            verdict = self.read(text, at, at + len(opener), schemas)
            if isinstance(verdict, More):
                return Step((), at, is_inside=True)
            if isinstance(verdict, Found) and verdict.calls:
                return Step(verdict.calls, verdict.end)
            start = verdict.end if isinstance(verdict, Found) else at + len(opener)

    @abstractmethod
    def read(self, text: str, at: int, body: int, schemas: Schemas) -> Verdict:
        """Judges the markup that begins at `at`, whose opener ends at `body`."""


def first_of(text: str, markers: Iterable[str], start: int = 0) -> tuple[int, str]:
    """Where the first of the markers is, and which; the longer one of two at one place."""
    places = [(text.find(marker, start), marker) for marker in markers]
    found = [(at, -len(marker), marker) for at, marker in places if at >= 0]
    if not found:
        return len(text), ""
    at, _, marker = min(found)
    return at, marker


def held_from(text: str, markers: Iterable[str], start: int = 0) -> int:
    """Text from here on may be the beginning of a marker."""
    longest = max(map(len, markers), default=1)
    for at in range(max(start, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            return at
    return len(text)


def begins(text: str, at: int, markers: Iterable[str]) -> str | More | None:
    """The marker at this place; More when it may still become one; None when it cannot."""
    rest = text[at : at + max(map(len, markers))]
    for marker in markers:
        if rest.startswith(marker):
            return marker
    return More() if any(marker.startswith(rest) for marker in markers) else None


def skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
