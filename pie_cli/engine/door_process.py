"""The door as the hub's child: started, started anew when it ends, given up when it ends often."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from pie_cli.addresses import Listener
from pie_cli.engine.journal import Journal
from pie_cli.engine.options import HubOptions
from pie_cli.engine.parts import DEATH_SECONDS, MAX_DEATHS, Deaths, EngineEnd
from pie_cli.engine.worker_process import spawn

CLOSE_SECONDS = 3.0


def open_door(
    options: HubOptions, journal: Journal, on_failure: Callable[[EngineEnd], None]
) -> "DoorProcess | None":
    """The door of an engine; None when it does not listen."""
    if options.listener is None:
        return None
    return DoorProcess(options.listener, options.hub_address, options.log_path, journal, on_failure)


async def close_door(door: "DoorProcess | None") -> None:
    """After the hub has said its last words."""
    if door:
        await door.close()


class DoorProcess:
    """Made inside a running loop; starts at once. Its clients end with it."""

    def __init__(
        self, listener: Listener, hub_address: str, log_path: str, journal: Journal,
        on_failure: Callable[[EngineEnd], None],
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._listener, self._log_path, self._journal = listener, log_path, journal
        self._on_failure = on_failure
        self._deaths = Deaths(self._loop.time)
        descriptor = str(listener.descriptor)
        self._command = [
            sys.executable, "-m", "pie_cli.engine.door", "--descriptor", descriptor,
            "--address", listener.address, "--hub", hub_address, "--log", log_path,
        ]  # fmt: skip
        self._process: subprocess.Popen | None = None
        self._pidfd = -1
        self._start()

    async def close(self) -> None:
        """It passes on what was said last, and ends."""
        if self._process:
            self._loop.remove_reader(self._pidfd)
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.close(self._pidfd)
            self._process = None
        os.close(self._listener.descriptor)

    def _start(self) -> None:
        self._process = spawn(self._command, self._log_path, [self._listener.descriptor])
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        self._journal.info("listening", address=self._listener.address, pid=self._process.pid)

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status, self._process = self._process.wait(), None
        self._journal.error("door-ended", status=status)
        if self._deaths.add():
            text = f"the door at {self._listener.address} ended {MAX_DEATHS + 1} times"
            self._on_failure(EngineEnd(f"{text} within {DEATH_SECONDS:.0f} s"))
        else:
            self._start()
