"""The error of people's input, and what they may have meant: every module may raise it.

Imports nothing before there is an error.
"""

from collections.abc import Iterable


class UsageError(Exception):
    """What was typed is at fault: exit code 2. `hint` says what to type instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def meant(word: str, known: Iterable[str], hint: str) -> str:
    """The hint, preceded by the known word that is most like a wrong one, where one is."""
    near = nearest(word, known)
    return f"did you mean `{near}`? {hint}" if near else hint


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is a few slips of the finger away: one for each three letters."""
    from difflib import get_close_matches

    most = len(word) // 3
    alike = [each for each in known if word and abs(len(each) - len(word)) <= most]
    alike = get_close_matches(word, sorted(alike), 5, 0.5)
    edits = {each: _edits(word, each) for each in alike}
    near = min(alike, key=edits.__getitem__, default=None)
    return near if near is not None and edits[near] <= most else None


def _edits(one: str, other: str) -> int:
    """How many letters to change, add, drop, or swap with the next, from one word to the other."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            least = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
