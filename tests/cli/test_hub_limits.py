"""Limits of a launch, and what random requests leave."""

import pytest

from ipc import client as c
from tests.cli.hub_soak import soak


def test_limits_above_the_engines_own_are_refused_by_name(client):
    client.ask("def main(i): pass", limits=c.Asked(memory=1 << 40))
    refused = client.wait(c.Refused)
    assert "`memory`" in refused.message and "not raise" in refused.hint
    client.ask("def main(i): pass", limits=c.Asked(cpu=0))
    assert "`cpu`" in client.wait(c.Refused).message


@pytest.mark.parametrize("timeout", [float("nan"), 0.0, -1.0, float("-inf")])
def test_a_timeout_that_is_no_time_is_refused(client, timeout):
    client.ask("def main(i): pass", timeout=timeout)
    refused = client.wait(c.Refused | c.Launched)
    assert isinstance(refused, c.Refused) and "timeout" in refused.message


def test_a_timeout_without_end_is_none(client):
    assert client.value_of(client.run("def main(i): return 1", timeout=float("inf"))) == "1"


@pytest.mark.parametrize(
    ("source", "limits", "limit"),
    [
        ("def main(i): x = 'y' * (200 << 20)", {"memory": 64 << 20}, "memory"),
        # Code that does not look for failed allocations crashes near the limit.
        ("import ctypes\ndef main(i):\n  x = 'y' * (60 << 20); ctypes.string_at(0)",
         {"memory": 70 << 20}, "memory"),
        ("import ctypes\ndef main(i):\n  ctypes.string_at(0)", {"memory": 70 << 20}, None),
        ("import os\ndef main(i):\n  while True: os.dup(0)", {"descriptors": 20}, "descriptors"),
        ("def main(i):\n  while True: print('x' * 999)", {"output": 10_000}, "output"),
        ("def main(i):\n  while True: pass", {"cpu": 1}, "cpu"),
    ],
)  # fmt: skip
def test_a_process_beyond_a_limit_of_its_launch_ends_by_it(client, source, limits, limit):
    end = client.end_of(client.run(source, limits=c.Asked(**limits)))
    assert end.limit == limit
    assert end.exit == (137 if limit else 1)
    assert not limit or f"`{limit}`" in end.message


def test_a_bare_launch_needs_little_memory(client):
    process = client.run("async def main(i): return 'x'", limits=c.Asked(memory=4 << 20))
    assert client.value_of(process) == '"x"'


def test_more_messages_a_second_than_the_limit_wait_and_none_is_lost(client):
    source = """
from inferlet import session
def main(input):
    for i in range(250):
        session.send(i)
"""
    process = client.run(source, limits=c.Asked(messages=100))
    client.value_of(process)
    assert client.texts(process) == [str(i) for i in range(250)]


@pytest.mark.parametrize("seed", [1])
def test_random_requests_and_kills_leave_nothing(tmp_path, seed):
    assert soak(tmp_path, seed, steps=400).launched > 10
