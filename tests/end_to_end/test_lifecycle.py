"""Parts that end in the middle of a run: one clear message, nothing left behind, the rest goes on."""

import json
import subprocess
import sys

import pytest

from tests.end_to_end import processes
from tests.end_to_end.conftest import ROOT, environment, run_pie

pytestmark = pytest.mark.model
SECONDS = 400  # for whatever is waited for, on a slow and busy machine

# Decodes for ever with passes in flight; says so once it does.
DECODES = """
import os
from inferlet import *

async def main(input):
    ws, pipe, tok, n = WorkingSet(), Pipeline(), Channel([1], dtype.i32), 0
    def step():
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t
    pre, dec = ForwardPass(), ForwardPass()
    pre.embed([1, 2, 3])
    dec.embed(tok)
    for p in (pre, dec):
        p.state([ws], StateGeometry.folding())
    first, _ = pre.epilogue(step), dec.epilogue(step)
    pipe.submit(pre)
    await first
    def on_token(t):
        nonlocal n
        n += 1
        if n == 3:
            session.send(str(os.getpid()))
        return n < input.get("tokens", 4000)
    return await pipe.run_ahead(dec, 4000, on_token)
"""


@pytest.fixture
def start(home, app):
    """Starts `pie run` of an app and waits for its first message: a Popen with pipes."""
    running = []

    def call(source: str, *args: str, own_home=None) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "pie_cli", "run", app(source), "--events", "--no-stdin", *args],
            env=environment(own_home or home), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        running.append(process)
        for line in process.stdout:
            if (event := json.loads(line))["event"] == "message":
                process.inner = int(event["message"])
                return process
        raise AssertionError(process.stderr.read())

    yield call
    for process in running:
        process.kill()
        process.communicate()


def assert_engine_goes_on(home) -> None:
    done = run_pie(home, "run", "inferlets/hello.py")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"hello": "world"}), done.stderr


def pool_is_whole(home) -> bool:
    """No live process, and every page free again."""
    stats = json.loads(run_pie(home, "ps", "--json").stdout)
    return not stats


def test_an_inferlet_killed_in_mid_run_exits_137_and_the_others_go_on(home, start):
    other = start(DECODES, "--input", '{"tokens": 60}')
    victim = start(DECODES)
    processes.kill(processes.inferlet(home, victim.inner))
    assert victim.wait(SECONDS) == 137
    _, err = victim.communicate()
    assert err.count("error:") == 1 and "SIGKILL" in err
    out, err = other.communicate(timeout=SECONDS)
    assert other.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["value"] == 60
    processes.wait_until(lambda: pool_is_whole(home))
    assert_engine_goes_on(home)


def test_a_client_killed_in_mid_run_leaves_no_process(home, start):
    client = start(DECODES)
    client.kill()
    processes.wait_until(lambda: pool_is_whole(home))
    assert_engine_goes_on(home)


def test_pie_kill_ends_a_process_with_137(home, start):
    client = start(DECODES, "--name", "victim")
    assert run_pie(home, "kill", "victim").returncode == 0
    assert client.wait(SECONDS) == 137
    assert run_pie(home, "kill", "victim").returncode == 2


def test_a_timeout_exits_124(home, app):
    """Not told to wait for its first token: a busy machine may need longer for it."""
    done = run_pie(home, "run", app(DECODES), "--no-stdin", "--timeout", "3")
    assert done.returncode == 124
    assert "its timeout of 3 s" in done.stderr


@pytest.mark.parametrize("part", ["worker", "hub"])
def test_a_part_killed_in_mid_run_is_exit_3_and_the_next_run_goes_on(
    part, model_path, start, tmp_path_factory
):
    """With the worker the processes that use it end, with the hub all of the engine does."""
    own = tmp_path_factory.mktemp("e")
    assert run_pie(own, "models", "add", model_path, "--name", "m").returncode == 0
    try:
        client = start(DECODES, "--model", "m", own_home=own)
        hub = processes.hub(own)
        everything = processes.descendants(hub) | {hub}
        assert len(everything) >= 4  # hub, worker, zygote, inferlet, and spare ones
        processes.kill(getattr(processes, part)(own))
        assert client.wait(SECONDS) == 3
        err = client.communicate()[1]
        assert err.count("error:") == 1 and "log" in err
        if part == "hub":
            processes.wait_until(lambda: not everything & set(processes._parents()))
        assert_engine_goes_on(own)
        assert (processes.hub(own) == hub) == (part == "worker")
    finally:
        run_pie(own, "stop")
