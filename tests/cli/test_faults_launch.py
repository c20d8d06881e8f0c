"""Parts killed before a run is at work, and beside it: starting, launching, queued, detached, leaving."""

import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ipc import client as c
from tests.cli import fault_worker, faults
from tests.cli.conftest import SECONDS, is_gone, wait_until
from tests.cli.fault_stages import HELLO, STAGES
from tests.cli.faults import FaultyEngine, assert_ends, descendants, stop
from tests.cli.hub_client import HubClient
from tests.cli.test_faults import GOES_ON, LOG, LOST_HUB, LOST_INFERLET, LOST_ZYGOTE

KILL, TERM, INT, CONT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGCONT
RECEIVING = STAGES["receiving"].source
KILLED = (137, r"error: the process was ended by `pie kill`\n")
STOPPED = (137, r"error: the process was ended because the engine was stopped\n")
CLIENT_ENDED = (137, r"error: the process was ended because its client ended\n")


@pytest.fixture
def connect(faulty: FaultyEngine) -> Iterator[Callable[[], HubClient]]:
    clients: list[HubClient] = []

    def make() -> HubClient:
        clients.append(HubClient(faulty.engine))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def assert_goes_on(client: HubClient, run: faults.Run) -> None:
    assert client.send("victim", "end") == c.ACCEPTED
    assert_ends(run, GOES_ON, '"done"\n')


@pytest.mark.parametrize("part", ["hub", "worker", "zygote", "spare", "first"])
def test_a_part_killed_while_nothing_runs(faulty: FaultyEngine, part):
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    if part == "spare":
        pids = set(wait_until(faulty.spares))
    else:
        pids = {faulty.pid_of(part)}
    for pid in pids:
        faulty.kill(part, pid)
    faulty.wait_until_gone(pids)
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


# ---- while the engine starts


def wait_for_clients(faulty: FaultyEngine, count: int) -> None:
    client = HubClient(faulty.engine)

    def connected() -> int:
        client.say(c.AskFacts(1))
        return client.wait(c.Facts).clients - 1

    wait_until(lambda: connected() == count)
    client.close()


WHILE_STARTING = {
    "client": (-KILL, ""),
    "hub": LOST_HUB,
    "worker": (
        3, rf"error: the worker ended while starting \(SIGKILL\)\n\nhint: {LOG}\n"
    ),
    "zygote": GOES_ON,
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "number"),
    [("client", KILL), ("client", INT), ("client", TERM), ("hub", KILL), ("worker", KILL),
     ("zygote", KILL)],
)  # fmt: skip
def test_a_part_killed_while_the_engine_starts(faulty: FaultyEngine, part, number):
    faulty.stop()
    (faulty.home / fault_worker.HOLD).touch()
    run = faulty.run(HELLO, name="first")
    hub = faulty.pid_of("hub")
    other = faulty.run(HELLO, name="second")
    wait_for_clients(faulty, 2)
    parts = {name: faulty.pid_of(name) for name in ("worker", "zygote")}
    parts |= {"client": run.process.pid, "hub": hub}
    before = descendants(hub)
    faulty.kill(part, parts[part], number)
    ending = WHILE_STARTING[part] if number == KILL else (130, r"error: interrupted\n")
    if part != "zygote":
        status, out, said = run.end()
        assert (status, out) == (ending[0], "")
        assert number != KILL or re.search(ending[1] + "$", said), said
    (faulty.home / fault_worker.HOLD).unlink()
    if part in ("client", "zygote"):
        status, out, said = other.end()
        assert (status, out) == (0, '"hello"\n'), said
    else:
        status, out, said = other.end()
        assert (status, out) == (3, "") and said.count("error:") == 1, said
    if part == "zygote":
        assert run.end()[:2] == (0, '"hello"\n')
    survives = part in ("client", "zygote")
    faulty.check_nothing_is_left(hub=hub, survives=survives, before=before)


# ---- between the launch and `main`


@pytest.mark.parametrize("part", ["client", "inferlet", "worker", "zygote", "hub"])
def test_a_part_killed_between_fork_and_main(faulty: FaultyEngine, connect, part):
    client = connect()
    spares = wait_until(lambda: len(found := faulty.spares()) == 3 and found)
    for pid in spares:
        stop(pid)
    run = faulty.run(RECEIVING)
    wait_until(lambda: client.rows().get("victim", None) is not None)
    wait_until(lambda: client.rows()["victim"].state == "running")
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    pid = spares[0] if part == "inferlet" else faulty.pid_of(part, run)
    faulty.kill(part, pid)
    match part:
        case "client":
            assert_ends(run, (-KILL, ""))
        case "inferlet":
            assert_ends(run, LOST_INFERLET)
        case "zygote":
            assert_ends(run, LOST_ZYGOTE)
        case "hub":
            assert_ends(run, LOST_HUB)
    for pid in spares:
        with suppress(ProcessLookupError):
            os.kill(pid, CONT)
    if part == "worker":
        assert_goes_on(client, run)
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


@pytest.mark.parametrize("part", ["client", "worker", "zygote", "hub"])
def test_a_part_killed_between_the_request_and_the_fork(faulty: FaultyEngine, connect, part):
    client = connect()
    zygote = faulty.pid_of("zygote")
    stop(zygote)
    run = faulty.run(RECEIVING, "--limit", "memory=64M")  # which no spare has
    wait_until(lambda: "victim" in client.rows())
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    faulty.kill(part, faulty.pid_of(part, run))
    match part:
        case "client":
            assert_ends(run, (-KILL, ""))
        case "zygote":
            assert_ends(run, LOST_ZYGOTE)
        case "hub":
            assert_ends(run, LOST_HUB)
    if part in ("client", "worker"):
        os.kill(zygote, CONT)
    if part == "worker":
        assert_goes_on(client, run)
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


# ---- queued


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))  # 20 processes


@pytest.mark.parametrize("part", ["client", "worker", "zygote", "hub"])
def test_a_part_killed_while_a_launch_waits_in_the_queue(faulty: FaultyEngine, part):
    faulty.stop()
    many = faulty.run(
        RECEIVING, "-n", 20, "--keep-alive", 600, name=None, preexec_fn=few_descriptors
    )
    wait_until(lambda: many.err.read_text().count("here ") == 20)
    hub = faulty.pid_of("hub")
    client = HubClient(faulty.engine)
    run = faulty.run(RECEIVING)
    wait_until(lambda: (row := client.rows().get("victim")) and row.state == "queued")
    wait_until(lambda: "waits, " in run.err.read_text())  # its client knows
    before = descendants(hub)
    faulty.kill(part, faulty.pid_of(part, run))
    if part == "hub":
        for each in (run, many):
            status, _, said = each.end()
            assert status == 3 and re.search(LOST_HUB[1] + "$", said), said
    elif part == "client":
        assert_ends(run, (-KILL, "waits, .*\n"))
        wait_until(lambda: "victim" not in client.rows())
        assert len(client.rows()) == 20
    elif part == "zygote":  # those that ran end; the one that waited has its turn
        status, _, said = many.end()
        assert status == 3 and said.count("the sandbox's zygote ended") == 20
        run.inner_pid()
    else:
        wait_until(lambda: is_gone(next(iter(before))) or client.rows()["victim"].state == "queued")
        assert len(client.rows()) == 21
    if part != "hub":
        for process in client.rows():
            client.send(process, "end")
        assert part == "zygote" or many.end()[0] == 0
        if part == "worker":
            run.inner_pid()
            client.send("victim", "end")
        if part != "client":
            status, out, said = run.end()
            assert (status, out) == (0, '"done"\n'), said
    client.close()
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)
    faulty.stop()  # an engine of few descriptors


# ---- detached, and attached twice


@pytest.mark.parametrize("part", ["inferlet", "worker", "zygote", "hub"])
def test_a_part_killed_while_a_detached_process_decodes(faulty: FaultyEngine, connect, part):
    client = connect()
    run = faulty.run(STAGES["decoding"].source, "--detach")
    assert run.process.wait(SECONDS) == 0
    client.say(c.Attach(1, "victim"))
    inner = int(client.wait(c.Sent, lambda sent: sent.text.startswith("here ")).text.split()[1])
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    faulty.kill(part, faulty.inferlet(inner) if part == "inferlet" else faulty.pid_of(part))
    if part == "hub":
        wait_until(client.connection.engine_ended)
    else:
        end = client.end_of("victim")
        assert end.exit == (137 if part == "inferlet" else 3), end
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


@pytest.mark.parametrize("part", ["client", "attached", "inferlet", "worker", "zygote", "hub"])
def test_a_part_killed_while_two_clients_hear(faulty: FaultyEngine, connect, part):
    client = connect()
    run = faulty.run(RECEIVING)
    run.inner_pid()
    attached = faulty.run_words("attach", "victim")
    wait_until(lambda: client.rows()["victim"].views == 2)
    hub = faulty.pid_of("hub")
    before = descendants(hub)
    pid = attached.process.pid if part == "attached" else faulty.pid_of(part, run)
    faulty.kill(part, pid)
    if part in ("attached", "worker"):
        assert_goes_on(client, run)
    ending = {"hub": LOST_HUB, "zygote": LOST_ZYGOTE, "inferlet": LOST_INFERLET}.get(part)
    if ending:
        assert_ends(run, ending)
    status, _, said = attached.end()
    match part:
        case "client":
            assert status == 137 and re.search(CLIENT_ENDED[1] + "$", said), said
        case "attached":
            assert status == -KILL
        case "worker":
            assert status == 0
        case _:
            words = ending[1].replace("{signal}", "KILL")
            assert status == ending[0] and re.search(words + "$", said), said
    faulty.check_nothing_is_left(hub=hub, survives=part != "hub", before=before)


# ---- while the engine leaves


@pytest.mark.parametrize("part", ["worker", "hub", "client"])
def test_a_part_killed_while_the_engine_leaves(faulty: FaultyEngine, part):
    run = faulty.run(RECEIVING)
    run.inner_pid()
    hub, worker = faulty.pid_of("hub"), faulty.pid_of("worker")
    before = descendants(hub)
    hold = faulty.home / fault_worker.HOLD
    hold.touch()  # the hub waits for the worker
    os.kill(hub, TERM)
    assert_ends(run, STOPPED)
    late = faulty.run(HELLO, name="late")  # waits for the one that leaves
    faulty.kill(part, {"worker": worker, "hub": hub, "client": late.process.pid}[part])
    if part == "client":
        assert late.process.wait(SECONDS) == -KILL
        hold.unlink()
    else:
        hold.unlink()
        status, out, said = late.end()
        assert (status, out) == (0, '"hello"\n'), said
    faulty.check_nothing_is_left(hub=hub, survives=False, before=before)
