"""What all markups share: the walk from opener to opener, equal for every way of cutting a reply.

A markup decides by the text up to some character alone. So a decision never depends on how much
text came after it, and any chunking gives the same calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from inferlet.formats.calls.source import Broken, Reading, Source, first_of, held_from
from inferlet.formats.calls.types import Types


@dataclass(frozen=True)
class Call:
    """One complete tool call; `arguments_json` is compact JSON text of an object."""

    name: str
    arguments_json: str


Calls = tuple[Call, ...]


class Markup(ABC):
    """A call markup: openers, and `read`, which reads what follows one of them."""

    openers: tuple[str, ...] = ()
    # Whether a block of reasoning at the start of a reply may hold what looks like calls.
    has_drafts = True
    # The role of answers, where a template that is silent about tools takes any role.
    answer_role: str | None = None

    def example(self) -> str:
        """A call with placeholders, for declaring tools where the template does not."""
        return ""

    @abstractmethod
    def read(self, source: Source, opener: str, types: Types) -> Reading[Calls]:
        """The calls of the markup behind the opener; `Broken` when it is none."""


class Scanner:
    """Finds calls in text. The search goes on in markup that turned out to be none, at the last
    opener in it: so no text is read more than a few times."""

    def __init__(self, markup: Markup, types: Types, think: Sequence[str] | None) -> None:
        """`think`: the markers around a model's reasoning."""
        self._markup, self._types = markup, types
        self._think = tuple(think or ()) if markup.has_drafts else ()
        self.reset()

    def reset(self) -> None:
        """A new reply begins."""
        self._text = ""  # what may be the beginning of an opener
        self._source: Source | None = None  # of the markup that is open
        self._reading: Reading[Calls] | None = None
        self._is_start = bool(self._think)  # only space has come
        self._draft: list[str] | None = None  # the reasoning that the reply began with

    @property
    def is_inside(self) -> bool:
        return self._reading is not None

    def finish(self) -> list[Call]:
        """The end of the reply. Reasoning that nobody closed hides no calls."""
        draft = self._draft
        found = [] if draft is None else self._scan("".join(draft))
        self.reset()
        return found

    def feed(self, fresh: str) -> list[Call]:
        """The calls that this text completes."""
        fresh = self._without_reasoning(fresh)
        return self._scan(fresh) if fresh else []

    def _without_reasoning(self, fresh: str) -> str:
        """The text that does not belong to reasoning which the reply began with."""
        if self._is_start:
            text, self._text = (self._text + fresh).lstrip(), ""
            if len(text) < len(self._think[0]) and self._think[0].startswith(text):
                self._text = text
                return ""
            self._is_start = False
            if not text.startswith(self._think[0]):
                return text
            self._draft, fresh = [], text
        if self._draft is None:
            return fresh
        text, self._text = self._text + fresh, ""
        at = text.find(self._think[1])
        end = at if at >= 0 else held_from(text, self._think[1:])
        self._draft.append(text[:end])
        if at < 0:
            self._text = text[end:]
            return ""
        self._draft = None
        return text[end + len(self._think[1]) :]

    def _scan(self, text: str) -> list[Call]:
        found: list[Call] = []
        if self._reading is None:
            text, at = self._text + text, 0
        else:
            self._source.give(text)
            calls, text, at = self._go_on()
            found += calls
        while self._reading is None:
            start, opener = first_of(text, self._markup.openers, at)
            if not opener:
                self._text = text[held_from(text, self._markup.openers, at) :]
                break
            self._text = ""
            self._source = Source(text, start + len(opener))
            self._trail = _Trail(self._markup.openers)
            self._reading = self._markup.read(self._source, opener, self._types)
            calls, text, at = self._go_on()
            found += calls
        return found

    def _go_on(self) -> tuple[Calls, str, int]:
        """Reads on in the open markup. The calls, and where the search goes on if it has ended."""
        source, calls, start = self._source, (), self._source.at
        try:
            next(self._reading)
        except StopIteration as end:
            calls, self._reading = end.value, None
        except Broken:
            self._reading = None
            return calls, *self._trail.before(source.text, start, source.at)
        else:
            self._trail.add(source.text[start : source.at])
        return calls, source.text, source.at


class _Trail:
    """What was consumed in former feeds, from the last opener in it on."""

    def __init__(self, openers: Sequence[str]) -> None:
        self._openers = openers
        self._num_kept = max(map(len, openers)) - 1
        self._kept = ""  # may hold the first part of an opener
        self._since: list[str] | None = None

    def add(self, fresh: str) -> None:
        text = self._kept + fresh
        last = self._last(text, 0, len(text))
        if last >= 0:
            self._since = [text[last:]]
        elif self._since is not None:
            self._since.append(fresh)
        self._kept = text[max(len(text) - self._num_kept, 0) :]

    def before(self, text: str, start: int, end: int) -> tuple[str, int]:
        """Where to search on, when the text was consumed from `start` and broke at `end`: a text,
        and the place in it of the last opener that was consumed, or of what may begin one."""
        last = self._last(text, start, end)
        if last >= 0:
            return text, last
        if self._since is None and not self._kept:
            return text, max(start, end - self._num_kept)
        # It began in a former feed, or an opener may have.
        self.add(text[start:end])
        before = self._kept if self._since is None else "".join(self._since)
        return before + text[end:], 0

    def _last(self, text: str, start: int, end: int) -> int:
        return max(text.rfind(opener, start, end) for opener in self._openers)
