"""Each part of an engine killed at each stage of a run: one clear text, nothing left, others go on."""

import re
import signal
from collections.abc import Iterator
from contextlib import nullcontext, suppress

import pytest

from ipc import client as c
from tests.cli.fault_stages import STAGES
from tests.cli.faults import Bystander, FaultyEngine, Run, descendants

KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT

# What the run says when a part is killed: exit code and all of stderr.
LOG = r"its log is `\S+/logs/engine-fake-\S+\.log`"
LOST_HUB = (3, rf"error: the engine ended unexpectedly\n\nhint: {LOG}\n")
LOST_WORKER_WORDS = (
    r"error: the worker ended unexpectedly \(SIG{signal}\), and the process with it; "
    rf"the engine starts a new one; {LOG}\n"
)
LOST_WORKER = (3, LOST_WORKER_WORDS)
LOST_ZYGOTE = (
    3, r"error: the sandbox's zygote ended, and the process with it; the engine starts a new one\n"
)  # fmt: skip
LOST_INFERLET = (137, r"error: the process was ended from outside \(SIG{signal}\)\n")
INTERRUPTED = (130, r"error: the process was interrupted\n")
GOES_ON = (0, "")


def expected(part: str, stage: str, number: int) -> tuple[int, str]:
    """Exit code and stderr of the run."""
    is_told = stage == "leaving"  # its result was told before
    if part == "hub":
        return GOES_ON if is_told else LOST_HUB
    if part == "spare" or is_told:
        return GOES_ON
    if part == "worker":
        return LOST_WORKER if STAGES[stage].has_state else GOES_ON
    if part == "zygote":
        return LOST_ZYGOTE
    return LOST_INFERLET


# Sorted by part: an engine is shared until it has lost a worker or zygote twice.
PARTS = ("client", "inferlet", "spare", "worker", "zygote", "hub")
POINTS = [(part, stage, KILL) for part in PARTS for stage in STAGES
          if (part, stage) != ("client", "leaving")]  # fmt: skip
POINTS += [
    ("client", "computing", TERM), ("client", "receiving", INT), ("inferlet", "computing", TERM),
    ("worker", "decoding", TERM), ("zygote", "computing", TERM), ("inferlet", "computing", INT),
]  # fmt: skip


def is_costly(part: str, stage: str) -> bool:
    """Points that start an engine or a zygote anew, and say little that others do not."""
    return part in ("worker", "zygote", "hub") and stage in ("receiving", "computing", "sending", "returning")


@pytest.fixture
def bystander(faulty: FaultyEngine) -> Iterator[Bystander]:
    """Beside the run: another client and its process."""
    bystander = Bystander(faulty.engine)
    yield bystander
    bystander.client.close()


def name_of(value: object) -> str:
    return value.name if isinstance(value, signal.Signals) else str(value).replace(" ", "_")


def parameters() -> list:
    slow = pytest.mark.slow
    return [pytest.param(*p, marks=slow if is_costly(*p[:2]) else (), id="-".join(map(name_of, p)))
            for p in POINTS]  # fmt: skip


@pytest.mark.parametrize(("part", "stage", "number"), parameters())
def test_a_part_killed_at_a_stage(faulty: FaultyEngine, bystander, part, stage, number):
    run = faulty.run(STAGES[stage].source)
    run.inner_pid()
    pid = faulty.pid_of(part, run)  # of one that leaves: before the engine ends it
    if stage == "leaving":
        assert run.end() == (0, '"done"\n', "")
    hub = faulty.pid_of("hub", run)
    before = descendants(hub)
    with suppress(ProcessLookupError) if stage == "leaving" else nullcontext():
        faulty.kill(part, pid, number)

    if part == "client":
        check_client(run, number)
    else:
        check_run(bystander, run, part, stage, number)
    if (part, number) != ("inferlet", INT):
        faulty.wait_until_gone({pid})
    if part in ("hub", "zygote"):
        bystander.check_lost() if part == "hub" else bystander.client.end_of(bystander.process)
    else:
        bystander.check()
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


def check_client(run: Run, number: signal.Signals) -> None:
    """Its process ends with it; what is left is checked by everybody."""
    status, out, said = run.end()
    if number == KILL:
        assert (status, out, said) == (-KILL, "", "")
    else:
        assert (status, out) == (130, "") and re.fullmatch(INTERRUPTED[1], said), said


def check_run(bystander: Bystander, run: Run, part: str, stage: str, number) -> None:
    """It ends as the contract says, or goes on to its result."""
    exit, words = expected(part, stage, number)
    if part == "inferlet" and number == INT and stage != "leaving":
        exit, words = GOES_ON  # a Ctrl-C is for the engine to act on
    if exit == 0 and stage != "leaving":
        assert bystander.client.send("victim", "end") == c.ACCEPTED
    status, out, said = run.end()
    words = words.replace("{signal}", number.name.removeprefix("SIG"))
    assert status == exit, said
    assert re.fullmatch(words, said), said
    assert out == ('"done"\n' if exit == 0 else "")
