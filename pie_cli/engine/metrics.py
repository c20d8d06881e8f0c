"""Counters of one engine, and the HTTP answer with them in Prometheus' text format.

Listens on loopback alone. Reads what others count; changes nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from ipc import messages as m

REQUEST_SECONDS = 10.0
MAX_REQUEST = 8 << 10  # bytes
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, str, str, dict[str, str], float]  # name, type, help, labels, value


class Counts:
    """What has happened in one engine since it started."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()  # by way: sent, sent_to, received
        self.frames: Counter[str] = Counter()  # relayed: up, down
        self.frame_bytes: Counter[str] = Counter()
        self.output_bytes = 0
        self.files = 0
        self.file_bytes = 0
        self.ends: Counter[int] = Counter()  # by exit code
        self.tokens: Counter[str] = Counter()  # in, out
        self._seen: dict[int, tuple[int, int]] = {}  # process number -> tokens in, out

    def relayed(self, way: str, size: int) -> None:
        self.frames[way] += 1
        self.frame_bytes[way] += size

    def stats(self, report: m.ProcessStats) -> None:
        """The worker counts tokens of each process, to its end; here they add up."""
        live = {number: counts[:2] for number, counts in report.processes.items()}
        for number, (tokens_in, tokens_out) in [*report.ended.items(), *live.items()]:
            before_in, before_out = self._seen.get(number, (0, 0))
            self.tokens["in"] += max(0, tokens_in - before_in)
            self.tokens["out"] += max(0, tokens_out - before_out)
        self._seen = live

    def samples(self) -> Iterator[Sample]:
        for name, counter, label, words in (
            ("messages", self.messages, "way", "Messages of inferlets, by way."),
            ("frames", self.frames, "way", "Frames relayed between inferlets and the worker."),
            ("frame_bytes", self.frame_bytes, "way", "Bytes of those frames."),
            ("processes_ended", self.ends, "exit", "Processes that have ended, by exit code."),
            ("tokens", self.tokens, "way", "Tokens computed (in) and sampled (out)."),
        ):
            for key, value in sorted(counter.items()):
                yield f"pie_{name}_total", "counter", words, {label: str(key)}, value
        yield "pie_output_bytes_total", "counter", "Bytes printed.", {}, self.output_bytes
        yield "pie_files_total", "counter", "Files that inferlets sent.", {}, self.files
        yield "pie_file_bytes_total", "counter", "Bytes of those files.", {}, self.file_bytes


def text_of(samples: Iterator[Sample]) -> str:
    """The exposition format: a head for each name, then its samples."""
    lines: list[str] = []
    last = ""
    for name, kind, words, labels, value in samples:
        if name != last:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            last = name
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{'{' + inner + '}' if inner else ''} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers GET /metrics."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        self._port, self._text = port, text
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    async def start(self) -> None:
        """Raises OSError when the port cannot be had."""
        self._server = await asyncio.start_server(
            self._answer, "127.0.0.1", self._port, limit=MAX_REQUEST
        )

    def close(self) -> None:
        if self._server:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head.split(b"\r\n")[0].split(b" ")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _response(self, request: list[bytes]) -> bytes:
        status, body = "404 Not Found", "the metrics are at /metrics\n"
        if len(request) == 3 and request[1].partition(b"?")[0] == b"/metrics":
            status, body = "405 Method Not Allowed", "GET /metrics\n"
            if request[0] in (b"GET", b"HEAD"):
                status, body = "200 OK", self._text()
        data = body.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if request[0] == b"HEAD" else data)
