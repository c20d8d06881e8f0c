"""The text of one call as it comes. What reads it is a generator that yields where it needs more.

Each character is looked at a bounded number of times, however the text is cut: what was read is
never read again, and only the beginning of a marker waits for its rest.
"""

import functools
import re
from collections.abc import Generator, Iterable
from typing import TypeVar

from inferlet.formats.calls.json_text import JsonScan

T = TypeVar("T")
Reading = Generator[None, None, T]

SPACE = re.compile(r"\s*")


class Broken(Exception):
    """No text that may follow makes this a call."""


class Source:
    """Methods that are generators read on from `at`; a marker that is not there is not consumed."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def give(self, fresh: str) -> None:
        """More text. What was consumed is let go."""
        self.text, self.at = self.text[self.at :] + fresh, 0

    def run(self, pattern: re.Pattern[str]) -> Reading[str]:
        """All characters of a class: the pattern is one, starred."""
        parts: list[str] = []
        while True:
            end = pattern.match(self.text, self.at).end()
            parts.append(self.text[self.at : end])
            self.at = end
            if end < len(self.text):
                return "".join(parts)
            yield

    def space(self) -> Reading[str]:
        return self.run(SPACE)

    def peek(self) -> Reading[str]:
        """The next character."""
        while self.at == len(self.text):
            yield
        return self.text[self.at]

    def until(self, *markers: str) -> Reading[tuple[str, str]]:
        """The text before the first of the markers, and that marker, which is consumed."""
        parts: list[str] = []
        while True:
            at, marker = first_of(self.text, markers, self.at)
            end = at if marker else held_from(self.text, markers, self.at)
            parts.append(self.text[self.at : end])
            self.at = end + len(marker)
            if marker:
                return "".join(parts), marker
            yield

    def take(self, *markers: str) -> Reading[str]:
        """The marker that stands here; empty when there is none of them."""
        while True:
            rest = self.text[self.at : self.at + max(map(len, markers))]
            for marker in markers:
                if rest.startswith(marker):
                    self.at += len(marker)
                    return marker
            if not any(marker.startswith(rest) for marker in markers):
                return ""
            yield

    def expect(self, *markers: str) -> Reading[str]:
        """The marker that must stand here."""
        marker = yield from self.take(*markers)
        if not marker:
            raise Broken
        return marker

    def json(self, begun: str = "") -> Reading[str]:
        """One JSON object or array, whose first character may have been read already."""
        scan, parts = JsonScan(), [begun]
        scan.feed(begun, 0)
        while True:
            end = scan.feed(self.text, self.at)
            parts.append(self.text[self.at : end])
            self.at = end
            if scan.is_broken:
                raise Broken
            if scan.is_done:
                return "".join(parts)
            yield


def first_of(text: str, markers: tuple[str, ...], start: int = 0) -> tuple[int, str]:
    """Where the first of the markers is, and which; the longer one of two at one place."""
    found = _any_of(markers).search(text, start)
    return (found.start(), found[0]) if found else (len(text), "")


@functools.lru_cache(maxsize=256)
def _any_of(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


def held_from(text: str, markers: Iterable[str], start: int = 0) -> int:
    """Text from here on may be the beginning of a marker."""
    longest = max(map(len, markers), default=1)
    for at in range(max(start, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            return at
    return len(text)
