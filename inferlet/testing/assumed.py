"""What `pie check` lets an app find where nothing was given: words, until they are used as numbers.

An input that the app computes with cannot be the word that stands for it. That ends the check as
`Wanted`, and the next one has a number there. So a fault is the app's own, not the assumption's.
"""

from collections.abc import Callable
from typing import Any

SAMPLE = "Hello"  # what an input that was not given is, what a client says, and what files hold
INTEGER, FRACTION = 4, 0.5  # of inputs that are used as numbers

OnNumber = Callable[[float], object]  # gets the number that would do in the word's place


class Wanted(BaseException):
    """An input is used as a number. No Exception, since the app may catch those."""


class Word(str):
    """A word that knows of which input it is."""

    _on_number: OnNumber

    @classmethod
    def of(cls, text: str, on_number: OnNumber) -> "Word":
        """`on_number` is called when it is used as a number."""
        word = cls(text)
        word._on_number = on_number
        return word

    def _wanted(self, number: float) -> None:
        self._on_number(number)
        raise Wanted

    def __float__(self) -> float:
        return self._wanted(FRACTION)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):  # a longer word, or a number: what comes of it will say
            return Word.of(str(self) * other, self._on_number)
        return self._as_number(other)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Word):
            both = str(self) + str(other)
            return Word.of(both, lambda n: (self._on_number(n), other._on_number(n)))
        return str(self) + other if isinstance(other, str) else self._as_number(other)

    def _as_number(self, other: Any) -> Any:
        if isinstance(other, Word):
            self._wanted(INTEGER)
        if isinstance(other, int | float):
            self._wanted(FRACTION if isinstance(other, float) else INTEGER)
        return NotImplemented


def _unary(self: Word, *_: Any) -> None:
    self._wanted(INTEGER)


def _comparison(name: str) -> Callable[[Word, Any], Any]:
    theirs = getattr(str, name)

    def compare(self: Word, other: Any) -> Any:
        return theirs(self, other) if isinstance(other, str) else self._as_number(other)

    return compare


for _name in ("neg", "pos", "abs", "invert", "index", "int", "round", "trunc", "floor", "ceil"):
    setattr(Word, f"__{_name}__", _unary)
for _name in ("sub", "truediv", "floordiv", "pow", "divmod"):  # not `mod`, which formats
    setattr(Word, f"__{_name}__", Word._as_number)
for _name in ("add", "sub", "truediv", "floordiv", "mod", "pow", "divmod"):
    setattr(Word, f"__r{_name}__", Word._as_number)
for _name in ("lt", "le", "gt", "ge"):
    setattr(Word, f"__{_name}__", _comparison(f"__{_name}__"))


class Input(dict):
    """The input of `main`. A key that was not given is a word, and is noted."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.missing: list[str] = []
        self.numbers: dict[str, float] = {}  # what those are that were used as numbers

    def __missing__(self, key: str) -> str:
        if key not in self.missing:
            self.missing.append(key)
        return Word.of(SAMPLE, lambda number: self.numbers.setdefault(key, number))


class Files(dict):
    """Attached files. One that was not given holds a word, and is noted."""

    def __init__(self, given: dict[str, bytes], missing: list[str]) -> None:
        super().__init__(given)
        self._missing = missing

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> bytes:
        if f"file {name}" not in self._missing:
            self._missing.append(f"file {name}")
        return SAMPLE.encode()


# Messages say what these are to the app.
Word.__name__ = Word.__qualname__ = "str"
Input.__name__ = Input.__qualname__ = Files.__name__ = Files.__qualname__ = "dict"
