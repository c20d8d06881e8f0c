"""`pie serve`: figures over HTTP, and limits of the engine's own."""

import re
import socket
import urllib.request

from tests.cli.conftest import SECONDS


def end(server) -> None:
    server.terminate()
    server.communicate(timeout=SECONDS)


def test_metrics_are_served_on_the_port(own_engine):
    server = own_engine.start("serve", "--metrics", 0)
    assert server.stdout.readline().startswith("ready: ")
    (log,) = own_engine.home.glob("logs/*.log")
    port = re.search(r"metrics port=(\d+)", log.read_text())[1]
    assert own_engine.pie("run", "inferlets/hello.py").returncode == 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    assert 'pie_processes_ended_total{exit="0"} 1' in text
    end(server)


def test_a_port_in_use_is_exit_3(own_engine):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = own_engine.pie("serve", "--metrics", taken.getsockname()[1])
    assert done.returncode == 3
    assert "for metrics cannot be had" in done.stderr and "`--metrics PORT`" in done.stderr


def test_the_engines_own_limits_are_set_and_a_launch_may_lower_them_alone(own_engine):
    server = own_engine.start("serve", "--limit", "memory=2G,inbox=5")
    assert server.stdout.readline().startswith("ready: ")
    assert own_engine.pie("run", "inferlets/hello.py", "--limit", "memory=1500M").returncode == 0
    refused = own_engine.pie("run", "inferlets/hello.py", "--limit", "inbox=6")
    assert refused.returncode == 2 and "`inbox`" in refused.stderr
    end(server)


def test_a_limit_that_is_none_is_exit_2_before_anything_starts(own_engine):
    done = own_engine.pie("serve", "--limit", "speed=1")
    assert done.returncode == 2 and "no limit `speed`" in done.stderr
    assert own_engine.card() is None
