"""The error of people's input, and what they may have meant: every module may raise it.

Imports nothing before there is an error.
"""

from collections.abc import Iterable


class UsageError(Exception):
    """What was typed is at fault: exit code 2. `hint` says what to type instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def meant(word: str, known: Iterable[str], hint: str, likeness: float = 0.8) -> str:
    """The hint, preceded by the known word that is most like a wrong one, where one is."""
    from difflib import get_close_matches

    near = get_close_matches(word, sorted(known), 1, likeness)
    return f"did you mean `{near[0]}`? {hint}" if near else hint
