"""What is said of processes that ended without a word of their own."""

import signal

import pytest

from ipc.types import Limits
from pie_cli.engine import endings
from pie_cli.engine.launcher import Exit

LIMITS = Limits(memory=256 << 20)


def ending(status: int, memory: int = 0) -> endings.Ending:
    return endings.of_exit(Exit(status, 0.0, 0, None, memory), LIMITS)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
def test_a_crash_that_may_be_for_want_of_memory_names_the_limit_and_what_was_held(number):
    """One huge allocation that failed leaves little held: nobody can tell it from a fault."""
    made = ending(-number, 30 << 20)
    assert (made.error, made.exit, made.limit) == ("Crashed", 1, None)
    assert f"crashed ({number.name}): " in made.message
    assert "`memory` of 256M (268,435,456 bytes) it held about 30 MiB" in made.message


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGFPE])
def test_other_crashes_do_not_speak_of_memory(number):
    made = ending(-number)
    assert f"crashed ({number.name}): " in made.message and "memory" not in made.message


def test_a_crash_near_the_limit_is_told_as_the_limits():
    made = ending(-signal.SIGSEGV, 250 << 20)
    assert (made.limit, made.exit) == ("memory", 137)
    assert made.message == "the process needed more than its limit `memory` of 256M (268,435,456 bytes)"
