"""The error of an inferlet that asks what it may not: its process is dropped, and told so."""

from ipc.errors import ErrorCode

MAX_ID = 1 << 62  # handles and sequence numbers


def counted(number: int, noun: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Violation(Exception):
    def __init__(
        self, message: str, code: ErrorCode = ErrorCode.INVALID_COMMAND, limit: str = ""
    ) -> None:
        """`limit`: the key of the process's limit that was met."""
        super().__init__(message)
        self.code, self.limit = code, limit
