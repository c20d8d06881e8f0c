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


def counters(connection) -> ProcessStats:
    """The worker's newest report, once it is idle: two equal ones, further apart than it reports."""
    before = None
    while True:
        connection.send(c.List())
        now = connection.expect(c.Processes, 30).worker
        if now is not None and before == now:
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
    after = counters(connection)
    waves = after.waves - before.waves
    sent = after.messages_out - before.messages_out
    received = after.messages_in - before.messages_in
    assert waves >= TOKENS  # how many more depends on who waits for whom
    assert sent <= waves + 10, "one message a wave for all processes together, and statistics"
    credits = TOKENS // 3  # one for each half of a window of six
    assert received <= processes * (credits + 6), "no message for each token"


def test_everything_is_free_when_all_processes_have_ended(connection):
    decode(connection, 3)
    after = counters(connection)
    assert after.processes == {}
    assert after.pages_free == after.pages_total
