"""Counters, their text, and the HTTP answer."""

import asyncio
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress

from ipc import client as c
from ipc import messages as m
from pie_cli.engine.metrics import Counts, MetricsServer, text_of
from tests.cli.conftest import ROOT, SECONDS, wait_until
from tests.cli.hub_client import HubClient

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"\n]*"(,[a-z_]+="[^"\n]*")*\})? [0-9.e+-]+')


def test_tokens_add_up_over_processes_that_come_and_go():
    counts = Counts()
    for processes in ({1: (5, 1, 0)}, {1: (9, 3, 0), 2: (2, 0, 0)}, {2: (4, 1, 0)}, {}):
        counts.stats(m.ProcessStats(processes, 0, 0, 0, 0, 0))
    assert counts.tokens == {"in": 13, "out": 4}


def test_the_last_tokens_of_a_process_count_also_when_no_report_saw_it_live():
    counts = Counts()
    counts.stats(m.ProcessStats({1: (5, 1, 0)}, 0, 0, 0, 0, 0))
    counts.stats(m.ProcessStats({}, 0, 0, 0, 0, 0, ended={1: (9, 4), 2: (7, 5)}))
    assert counts.tokens == {"in": 16, "out": 9}


def test_the_text_is_in_the_exposition_format():
    counts = Counts()
    counts.messages["sent"] += 2
    counts.ends[137] += 1
    lines = text_of(counts.samples()).splitlines()
    assert 'pie_messages_total{way="sent"} 2' in lines
    assert 'pie_processes_ended_total{exit="137"} 1' in lines
    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines)
    sample = ("pie_info", "gauge", "x", {"model": 'a"b\\c\nd'}, 1)
    assert text_of(iter([sample])).endswith('{model="a\\"b\\\\c\\nd"} 1\n')


def test_the_server_answers_metrics_alone_and_survives_bad_requests():
    async def ask(port: int, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = b""
        with suppress(ConnectionError):  # it may close before it has read all
            writer.write(request)
            writer.write_eof()
            data = await reader.read()
        writer.close()
        return data

    async def run() -> None:
        server = MetricsServer(0, lambda: "pie_x 1\n")
        await server.start()
        answers = [
            await ask(server.port, request)
            for request in (
                b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                b"POST /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"GET /metrics", b"x" * 100_000,
                b"HEAD /metrics HTTP/1.1\r\n\r\n",
            )
        ]  # fmt: skip
        server.close()
        assert answers[0].startswith(b"HTTP/1.1 200 OK\r\n") and answers[0].endswith(b"pie_x 1\n")
        assert answers[1].startswith(b"HTTP/1.1 404") and answers[2].startswith(b"HTTP/1.1 405")
        assert answers[3].startswith(b"HTTP/1.1 404") and answers[4] == b""
        assert answers[6].endswith(b"\r\n\r\n")

    asyncio.run(run())


def daemon(engine, *words: object) -> subprocess.Popen:
    log = engine.home / "log"
    command = [sys.executable, "-m", "pie_cli.engine.daemon", "--model", "fake", "--log", str(log)]
    command += ["--model-path", str(engine.home / "models" / "fake"), *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, env=engine.environment, stdout=subprocess.PIPE)


def test_an_engine_serves_its_metrics_on_loopback(own_engine):
    with daemon(own_engine, "--metrics", 0, "--limits", '{"inbox": 7}') as process:
        wait_until(own_engine.card)
        assert own_engine.run("def main(): print('abc')").returncode == 0
        log = (own_engine.home / "log").read_text()
        port = int(re.search(r"metrics port=(\d+)", log)[1])
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        lines = text.splitlines()
        assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines)
        assert 'pie_processes_ended_total{exit="0"} 1' in lines
        assert "pie_output_bytes_total 4" in lines and "pie_worker_starts_total 1" in lines
        client = HubClient(own_engine)
        client.say(c.AskFacts(1))
        assert client.wait(c.Facts).limits.inbox == 7
        client.close()
        own_engine.pie("stop")
        assert process.wait(timeout=SECONDS) == 0


def test_a_port_that_is_taken_is_said_and_the_engine_leaves(own_engine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with daemon(own_engine, "--metrics", port) as process:
            assert process.wait(timeout=SECONDS) == 3
            assert f"the port {port} for metrics" in process.stdout.read().decode()
