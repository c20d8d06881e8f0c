"""Handles and queues of one process: what exists, and how much there may be."""

from __future__ import annotations

from typing import Any

from ipc.errors import ErrorCode
from worker.state import Process
from worker.violation import MAX_ID, Violation

MAX_HANDLES = 1 << 16  # of one kind, alive at once
PLURALS = {"pass": "passes"}


def get(table: dict[int, Any], kind: str, number: int) -> Any:
    found = table.get(number)
    if found is None:
        raise Violation(f"{kind} {number} does not exist")
    return found


def add(table: dict[int, Any], kind: str, number: int, value: Any) -> None:
    if number in table or not 0 <= number < MAX_ID:
        raise Violation(f"{kind} {number} exists already, or is out of range")
    if len(table) >= MAX_HANDLES:
        text = f"more than {MAX_HANDLES} {PLURALS.get(kind, kind + 's')} at once"
        raise Violation(text, ErrorCode.LIMIT)
    table[number] = value


def check_queued(process: Process) -> None:
    if process.queued >= process.limits.passes:
        limit = process.limits.passes
        message = f"more than {limit} queued pass{'' if limit == 1 else 'es'}"
        raise Violation(message, ErrorCode.LIMIT, "passes")
