"""The zygote plays a life before it forks: it runs to its end, and nothing of it stays."""

import asyncio
import gc
import linecache
import signal
import sys

import pytest

from inferlet.runtime import handles, launch, rehearsal
from inferlet.testing import byte_vocabulary
from ipc import messages as m


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(launch, "_vocabulary", byte_vocabulary())
    return launch.run


def test_the_rehearsed_program_runs_to_its_end(run):
    for _ in range(2):
        assert rehearsal.play(run) == m.Returned(
            '{"text": "go on", "more": "[1, 2.5, null, true]"}'
        )


def test_a_rehearsal_leaves_no_trace(run):
    rehearsal.play(run)  # the SDK's own late imports

    def state():
        gc.collect()
        return (
            list(sys.meta_path), set(sys.modules), sys.stdout, sys.stderr, set(linecache.cache),
            signal.getsignal(signal.SIGINT), handles.is_installed(),
            asyncio._get_running_loop(),
        )  # fmt: skip

    def runtimes():
        return [each for each in gc.get_objects() if isinstance(each, handles.Runtime)]

    # Those of other tests may go meanwhile, and are held so that no new one has an old one's id.
    before, others = state(), runtimes()
    for _ in range(3):
        rehearsal.play(run)
    assert state() == before
    assert {id(each) for each in runtimes()} <= {id(each) for each in others}
    assert not handles.is_installed()
