"""How long a launch takes, and what a live process and its messages cost.

    python -m tests.bench.launch MODEL_FOLDER [--tiers full,reduced,none] [--live 1,8,64,256,1000]
                                              [--messages 3000]

Launches through the real launcher, zygote and SDK, without an engine: milliseconds from the request
to the first line of the inferlet's `main`, and what it takes of the CPU, which other work disturbs
less. First one at a time, from a new process and from a spare one; then many at once, which stay
and wait for a message while their memory is read. Then messages, through a whole engine: see
`tests.bench.messages`.
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ipc import codec, frames
from ipc import messages as m
from ipc.types import EngineInfo, ModelInfo
from pie_cli.engine.launcher import Launched, Launcher, Limits
from pie_cli.sandbox import selftest
from tests.bench import messages

ENGINE = EngineInfo(protocol=codec.PROTOCOL_VERSION, page_size=16, num_pages=64)
SOURCE = """
import time
from inferlet import session

async def main(input):
    session.send(str(time.perf_counter_ns()))
    await session.receive()
"""
PAUSE = 0.03  # seconds between launches one at a time, as a person or a server would leave
SETTLE = 0.5  # seconds until those that have said their time are idle


@dataclass
class Latency:
    """Milliseconds of one way to launch."""

    tier: str
    what: str
    p50: float
    p90: float
    min: float
    child: float  # CPU until it is idle, p50
    zygote: float  # CPU of launch and reaping, p50: of another process, where a spare one is used


@dataclass
class Live:
    """Many live, idle processes. MB are 10^6 bytes; means over the processes."""

    tier: str
    num_live: int
    p50: float  # milliseconds to `main`, all asked for at once
    max: float
    uss: float  # MB that one process alone holds
    available: float  # MB of the machine's memory that one more process takes


class Bench:
    """One tier's zygote."""

    def __init__(self, tier: str, model: str, num_spares: int) -> None:
        self.tier = tier
        self.launcher = Launcher(tier, model, None, num_spares=num_spares)
        info = ModelInfo("bench", "bench", model, 259, 259, 2, 8, 4096, "float32")
        launch = m.Launch("p1", "bench.py", SOURCE, {}, "{}", {}, info, ENGINE)
        self._first_frame = frames.pack(frames.HUB, codec.encode(launch))

    async def launch(self) -> tuple[Launched, float]:
        """One live process, and the milliseconds that it took to reach `main`."""
        loop = asyncio.get_running_loop()
        start = time.perf_counter_ns()
        launched = await self.launcher.launch(Limits())
        await loop.sock_sendall(launched.sock, self._first_frame)
        reader = frames.FrameReader()
        while data := await loop.sock_recv(launched.sock, 1 << 16):
            for _, body in reader.feed(data):
                message = codec.decode_from_inferlet(body)
                if isinstance(message, m.Send):
                    return launched, (int(message.text) - start) / 1e6
        raise SystemExit(f"error: a process ended: {await launched.exited}")

    async def end(self, processes: list[Launched]) -> None:
        for launched in processes:
            self.launcher.kill(launched.launch_id)
        for launched in processes:
            await launched.exited
            launched.sock.close()

    async def one_at_a_time(self, count: int) -> list[tuple[float, float, float]]:
        """Milliseconds to `main`, and of CPU in child and zygote."""
        times = []
        for _ in range(count):
            zygote_before = cpu_time(self.launcher.zygote_pid)
            launched, taken = await self.launch()
            await asyncio.sleep(PAUSE / 2)
            while launched.pid is None:
                await asyncio.sleep(0)
            child = cpu_time(launched.pid)
            await self.end([launched])
            await asyncio.sleep(PAUSE / 2)
            times.append((taken, child, cpu_time(self.launcher.zygote_pid) - zygote_before))
        return times

    async def many(self, num_live: int) -> Live:
        before = available()
        started = await asyncio.gather(*(self.launch() for _ in range(num_live)))
        await asyncio.sleep(SETTLE)
        taken = before - available()
        processes, times = zip(*started, strict=True)
        sizes = [own_memory(launched.pid) for launched in processes]
        await self.end(list(processes))
        return Live(
            self.tier, num_live, statistics.median(times), max(times),
            statistics.mean(sizes) / 1e6, taken / num_live / 1e6,
        )  # fmt: skip


def own_memory(pid: int) -> int:
    """Bytes that only this process holds (USS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def cpu_time(pid: int) -> float:
    """Milliseconds of CPU so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def available() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.partition("MemAvailable:")[2].split()[0]) << 10


def summary(tier: str, what: str, times: list[tuple[float, float, float]]) -> Latency:
    walls, children, zygotes = zip(*times, strict=True)
    p90 = statistics.quantiles(walls, n=10)[-1]
    cpu = statistics.median(children), statistics.median(zygotes)
    return Latency(tier, what, statistics.median(walls), p90, min(walls), *cpu)


async def measure(tier: str, options: argparse.Namespace) -> list[Latency | Live]:
    rows: list[Latency | Live] = []
    for what, num_spares in (("new process", 0), ("spare process", 3)):
        bench = Bench(tier, options.model, num_spares)
        await bench.launcher.start()
        await bench.one_at_a_time(5)  # the first ones fault in what later ones find
        rows.append(summary(tier, what, await bench.one_at_a_time(options.rounds)))
        if num_spares:
            rows += [await bench.many(count) for count in options.live]
        await bench.launcher.close()
    return rows


def print_rows(rows: list[Latency | Live]) -> None:
    latencies = [row for row in rows if isinstance(row, Latency)]
    print(
        f"{'ms to `main`, one at a time':<40}{'p50':>8}{'p90':>8}{'min':>8}{'child':>8}{'zygote':>8}"
    )
    for row in latencies:
        walls = f"{row.p50:>8.1f}{row.p90:>8.1f}{row.min:>8.1f}"
        print(f"{row.tier:<10}{row.what:<30}{walls}{row.child:>8.1f}{row.zygote:>8.1f}")
    print(f"\n{'all at once, then idle':<40}{'p50 ms':>8}{'max ms':>8}{'USS MB':>8}{'MB each':>8}")
    for row in rows:
        if isinstance(row, Live):
            cells = f"{row.p50:>8.0f}{row.max:>8.0f}{row.uss:>8.2f}{row.available:>8.2f}"
            print(f"{row.tier:<10}{row.num_live:<30}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Launch latency and memory of live processes.")
    parser.add_argument("model", help="model folder")
    parser.add_argument("--tiers", type=lambda s: s.split(","), help="default: this machine's best")
    parser.add_argument("--live", default="1,8,64,256,1000", type=_numbers)
    parser.add_argument("--rounds", default=100, type=int)
    parser.add_argument("--messages", default=3000, type=int, help="round trips; 0 for none")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    rows: list[Latency | Live] = []
    for tier in options.tiers or [selftest.choose().name]:
        rows += asyncio.run(measure(tier, options))
    sent = messages.measure(options.messages, [1, 16]) if options.messages else []
    if options.json:
        print(json.dumps([asdict(row) for row in [*rows, *sent]]))
        return
    print_rows(rows)
    if sent:
        print()
        messages.print_rows(sent)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
