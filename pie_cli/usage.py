"""The error of people's input, without any import: every module may raise it."""


class UsageError(Exception):
    """What was typed is at fault: exit code 2. `hint` says what to type instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
