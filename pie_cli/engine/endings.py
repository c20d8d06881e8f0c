"""How a process ended, in words and exit codes. Knows the contract's table, nothing of sockets."""

import signal
from dataclasses import dataclass

from ipc import messages as m
from ipc.types import Limits
from pie_cli.engine.launcher import Exit
from pie_cli.engine.limits import amount

RAISED, ENGINE, TIMEOUT, INTERRUPTED, KILLED = 1, 3, 124, 130, 137
_CRASH_WORDS: dict[int, str] = {
    signal.SIGSEGV: "it used memory that it does not have", signal.SIGBUS: "a bad memory access",
    signal.SIGILL: "an illegal instruction", signal.SIGFPE: "an illegal calculation",
    signal.SIGABRT: "it gave up",
}  # fmt: skip
_CRASHES = frozenset(_CRASH_WORDS)
_FOR_WANT_OF_MEMORY = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT}
UNCAUGHT = 71  # exit code of a process whose SDK failed (zygote.py)
_NEARLY = 0.75  # of the limit `memory`: a crash beyond is for want of it
_CPU_SLACK = 1.0  # seconds by which the kernel's count may be short of the limit


@dataclass(frozen=True)
class Ending:
    """The facts of a terminal error."""

    error: str
    message: str
    exit: int
    traceback: str = ""
    limit: str | None = None


def timed_out(seconds: float) -> Ending:
    return Ending("Timeout", f"the process ran longer than its timeout of {seconds:g} s", TIMEOUT)


def killed() -> Ending:
    return Ending("Killed", "the process was ended by `pie kill`", KILLED)


def interrupted() -> Ending:
    return Ending("Interrupted", "the process was interrupted", INTERRUPTED)


def stopped() -> Ending:
    return Ending("Killed", "the process was ended because the engine was stopped", KILLED)


def client_gone() -> Ending:
    return Ending("Killed", "the process was ended because its client ended", KILLED)


def beyond_output(limit: int) -> Ending:
    message = f"the process wrote more than its limit `output` of {amount('output', limit)}"
    return Ending("LimitExceeded", message, KILLED, limit="output")


def beyond_files(size: int) -> Ending:
    message = f"the process sent more files than an engine stores for one ({size:,} bytes)"
    return Ending("LimitExceeded", message, KILLED, limit="output")


def does_not_read(size: int) -> Ending:
    message = f"the process left {size:,} bytes unread: code that never awaits cannot receive"
    return Ending("LimitExceeded", message, KILLED)


def stalls(seconds: float) -> Ending:
    message = (
        f"the process left a long command half sent for {seconds:.0f} s, and others waited for the "
        "memory that the engine kept for it: code that computes long after such a command should "
        "await in between"
    )
    return Ending("LimitExceeded", message, KILLED)


def largest_unread(size: int, limit: int) -> Ending:
    message = (
        f"processes left more than {limit:,} bytes unread together, and this one most: {size:,}; "
        "code that never awaits cannot receive"
    )
    return Ending("LimitExceeded", message, KILLED)


def broke_protocol(reason: str) -> Ending:
    return Ending("ProtocolError", f"the process broke the protocol: {reason}", KILLED)


def no_zygote() -> Ending:
    message = "the sandbox's zygote ended, and the process with it; the engine starts a new one"
    return Ending("EngineFailed", message, ENGINE)


def no_worker(how: str, log: str) -> Ending:
    message = f"the worker ended unexpectedly ({how}), and the process with it; "
    return Ending(
        "EngineFailed", f"{message}the engine starts a new one; its log is `{log}`", ENGINE
    )


def not_launched(reason: str) -> Ending:
    return Ending("LaunchFailed", reason, ENGINE)


def of_raised(raised: m.Raised, limits: Limits) -> Ending:
    """An error that ended `main`; one that tells of a limit counts as ended by that limit."""
    if raised.limit == "memory":
        return Ending(raised.error, _beyond_memory(limits), KILLED, raised.traceback, "memory")
    if raised.limit in Limits.__struct_fields__:
        most = amount(raised.limit, getattr(limits, raised.limit))
        message = f"the process met its limit `{raised.limit}` of {most}: {raised.message}"
        return Ending(raised.error, message, KILLED, raised.traceback, raised.limit)
    return Ending(raised.error, raised.message, RAISED, raised.traceback)


def _beyond_memory(limits: Limits) -> str:
    most = amount("memory", limits.memory)
    return f"the process needed more than its limit `memory` of {most}"


def _crashed(name: str, number: int, used: int, limits: Limits) -> str:
    """Code that got no memory and did not look may have held little: it asked for much at once."""
    message = f"the process crashed ({name}): {_CRASH_WORDS[number]}"
    if number not in _FOR_WANT_OF_MEMORY:
        return message
    most = amount("memory", limits.memory)
    return (
        f"{message}; native code is at fault, or got no memory and did not look: "
        f"of its limit `memory` of {most} it held about {max(used, 1 << 20) >> 20} MiB"
    )


def of_exit(exit: Exit, limits: Limits) -> Ending:
    """The end of a process that told nothing itself."""
    status, cpu = exit.status, exit.cpu
    if exit.setup_failed:
        return not_launched(f"the sandbox could not be set up: {exit.setup_failed}")
    # Code that does not look for failed allocations crashes for want of memory.
    if (status == UNCAUGHT or -status in _CRASHES) and exit.memory > _NEARLY * limits.memory:
        return Ending("MemoryError", _beyond_memory(limits), KILLED, limit="memory")
    if status >= 0:
        message = f"the process left with exit status {status}, without a result of `main`"
        return Ending("Exited", message, RAISED)
    number = -status
    if number in (signal.SIGXCPU, signal.SIGKILL) and cpu + _CPU_SLACK >= limits.cpu:
        message = f"the process used more than its limit `cpu` of {limits.cpu} s"
        return Ending("LimitExceeded", message, KILLED, limit="cpu")
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in _CRASHES:
        return Ending("Crashed", _crashed(name, number, exit.memory, limits), RAISED)
    return Ending("Killed", f"the process was ended from outside ({name})", KILLED)
