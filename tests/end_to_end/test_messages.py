"""Messages are counted, not timed: a token costs none upwards, a wave one downwards."""

import time

import pytest

from ipc import client as c
from ipc.messages import ProcessStats
from pie_cli import settings
from pie_cli.connection import connect
from tests.bench.pie_engine import generate

pytestmark = pytest.mark.model
TOKENS = 60


@pytest.fixture
def connection(home, monkeypatch, pie):
    assert pie("run", "inferlets/completion.py").returncode == 0  # the engine has reported a wave
    monkeypatch.setenv("PIE_HOME", str(home))
    connection = connect(settings.engine_folder("smollm2"))
    yield connection
    connection.close()


def counters(connection, least_waves: int = 1) -> ProcessStats:
    """The worker's newest report, once it is idle: two equal ones, further apart than it reports.

    On a busy machine a report may be late: it counts when it has so many waves.
    """
    before = None
    while True:
        connection.send(c.List())
        now = connection.expect(c.Processes, 240).worker
        if now is not None and before == now and not now.processes and now.waves >= least_waves:
            return now
        before = now
        time.sleep(1.5)


def decode(connection, processes: int) -> None:
    """Greedy decoding of TOKENS tokens by so many processes at once."""
    answers = generate(connection, [[100 + i, 5, 6] for i in range(processes)], TOKENS)
    assert [len(tokens) for tokens in answers] == [TOKENS] * processes


@pytest.mark.parametrize("processes", [1, 8])
def test_a_token_costs_a_fraction_of_a_message_up_and_a_wave_one_down(connection, processes):
    before = counters(connection)
    decode(connection, processes)
    after = counters(connection, before.waves + TOKENS)
    waves = after.waves - before.waves
    sent = after.messages_out - before.messages_out
    received = after.messages_in - before.messages_in
    assert sent <= waves + 10, "one message a wave for all processes together, and statistics"
    credits = TOKENS // 3  # one for each half of a window of six
    assert received <= processes * (credits + 6), "no message for each token"


def test_everything_is_free_when_all_processes_have_ended(connection):
    before = counters(connection)
    decode(connection, 3)
    after = counters(connection, before.waves + TOKENS)
    assert after.pages_free == after.pages_total
