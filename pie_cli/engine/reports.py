"""What an engine says of itself: its live processes, and its facts. Changes nothing."""

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ipc import client as c
from ipc.codec import PROTOCOL_VERSION
from pie_cli.engine.admission import Admission
from pie_cli.engine.clients import Client, Clients
from pie_cli.engine.metrics import Sample
from pie_cli.engine.parts import Parts
from pie_cli.engine.process import Process
from pie_cli.engine.processes import Processes

if TYPE_CHECKING:
    from pie_cli.engine.options import HubOptions

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int | None) -> float | None:
    """User and system time of a process so far; None when it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_bytes(pid: int | str | None) -> int | None:
    """Resident bytes, shared pages included; None when they are not known."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10
    except (OSError, IndexError):
        return None


class Reports:
    """Looks at everything of one engine."""

    def __init__(
        self,
        processes: Processes,
        admission: Admission,
        parts: Parts,
        clients: Clients,
        options: "HubOptions",
    ) -> None:
        self._processes, self._admission, self._parts = processes, admission, parts
        self._clients, self._options = clients, options
        self._started = time.time()

    def processes(self, client: Client) -> c.Processes:
        """Those that the client may see; a remote one sees nothing of the others."""
        self._admission.number()
        live = self._processes.by_id.values()
        base = self._parts.launcher.measure_base()
        rows = tuple(self._row(each, base) for each in live if client.may_see(each.record.client))
        return c.Processes(rows, None if client.is_remote else self._parts.stats)

    def facts(self, request: int, client: Client) -> c.Facts:
        """To a remote client, without what is of use on this machine alone."""
        facts = self._facts(request)
        if not client.is_remote:
            return facts
        return msgspec.structs.replace(facts, pid=0, log="", worker_pid=0, zygote_pid=None)

    def _facts(self, request: int) -> c.Facts:
        parts, ready = self._parts, self._parts.ready
        return c.Facts(
            request, os.getpid(), self._started, platform.python_version(), PROTOCOL_VERSION,
            ready.model if ready else None, ready.engine if ready else None,
            parts.launcher.tier, parts.sandbox, self._options.log_path, self._options.limits,
            self._admission.max_processes, self._admission.num_live, len(self._admission),
            len(self._clients), self._processes.last_number, parts.worker.pid,
            parts.worker_starts, parts.launcher.zygote_pid, parts.zygote_starts,
            resident_bytes("self") or 0,
        )  # fmt: skip

    def samples(self) -> Iterator[Sample]:
        """The engine's own metrics, besides what is counted."""
        parts, stats = self._parts, self._parts.stats
        model = self._options.worker.model
        yield (
            "pie_info",
            "gauge",
            "The engine.",
            {"model": model, "sandbox": parts.launcher.tier},
            1,
        )
        for name, words, value in (
            ("processes_live", "Live processes.", self._admission.num_live),
            ("processes_queued", "Launches that wait.", len(self._admission)),
            ("clients", "Connected clients.", len(self._clients)),
            ("uptime_seconds", "Since the engine started.", time.time() - self._started),
            ("hub_memory_bytes", "Resident memory of the hub.", resident_bytes("self") or 0),
        ):
            yield f"pie_{name}", "gauge", words, {}, value
        for name, words, value in (
            ("processes_launched", "Launches accepted.", self._processes.last_number),
            ("hub_cpu_seconds", "CPU time of the hub.", time.process_time()),
            ("worker_starts", "Starts of the worker.", parts.worker_starts),
            ("zygote_starts", "Starts of the zygote.", parts.zygote_starts),
        ):
            yield f"pie_{name}_total", "counter", words, {}, value
        if stats:
            yield "pie_pages", "gauge", "Pages of the worker.", {"state": "free"}, stats.pages_free
            used = stats.pages_total - stats.pages_free
            yield "pie_pages", "gauge", "Pages of the worker.", {"state": "used"}, used
            yield "pie_waves_total", "counter", "Waves of the worker.", {}, stats.waves

    def _row(self, process: Process, base: int) -> c.ProcessRow:
        """Its memory is what it has beyond a bare launch, as in `--limit memory`."""
        resident = resident_bytes(process.pid)
        memory = None if resident is None else max(0, resident - base)
        known = self._parts.stats.processes if self._parts.stats else {}
        tokens_in, tokens_out, pages, *_ = known.get(process.number, (None, None, None))
        return c.ProcessRow(
            process.id, process.run.app, process.record.client, process.state,
            age(process), tokens_in, tokens_out, pages, memory,
            self._parts.launcher.tier, self._options.worker.model, cpu_seconds(process.pid),
            process.position, len(process.inbox), len(process.views), process.run.priority,
        )  # fmt: skip


def age(process: Process) -> float:
    """Seconds since the launch was asked for."""
    return time.monotonic() - process.born
