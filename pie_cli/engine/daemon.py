"""The engine's process: one per user, PIE_HOME and model. Owns its folder, locks, card and log.

Run as `python -m pie_cli.engine.daemon --model NAME --model-path PATH --log FILE`.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sys
import time
from contextlib import suppress

import msgspec

from ipc.types import Limits
from pie_cli import cards, settings
from pie_cli.engine.hub import Hub
from pie_cli.engine.journal import Journal
from pie_cli.engine.options import Front, HubOptions
from pie_cli.engine.parts import EngineEnd
from pie_cli.engine.worker_process import WorkerOptions
from pie_cli.sandbox import policy, scheduling

LOCK_SECONDS = 40.0  # that a leaving engine may take, with a worker that does not answer
FAILED = 3


def take_lock(folder: settings.EngineFolder) -> int | None:
    """The descriptor that holds the engine's lock until this process ends; None: it is taken.

    An engine that is leaving holds it for a moment, and so may one that was just killed.
    """
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline or cards.read(folder):
                os.close(descriptor)
                return None
        time.sleep(0.02)


async def serve(options: HubOptions, folder: settings.EngineFolder, front: Front) -> EngineEnd:
    """Run the engine until it leaves. The caller holds the lock."""
    journal = Journal(options.log_path)
    scheduling.ask_for_slices(policy.HUB_SLICE, inherited=False)  # worker and zygote: their own
    hub = Hub(options, journal, front)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, _leave, hub, front, number)
    cards.write(folder, options.worker.model, options.log_path)
    journal.info("engine", pid=os.getpid(), model=options.worker.model)
    try:
        end = await hub.end
    finally:
        folder.card.unlink(missing_ok=True)  # first: nobody may connect to an engine that leaves
    journal.info("leaving", reason=end.failure or "no longer needed")
    await hub.close()
    for address in (options.hub_address, options.worker_address):
        with suppress(OSError):
            os.unlink(address.removeprefix("ipc://"))
    journal.info("gone")
    return end


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pie_cli.engine.daemon", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--sandbox", choices=("auto", "full", "none"), default="auto")
    parser.add_argument("--keep-alive", type=float)
    parser.add_argument("--metrics", type=int, metavar="PORT")
    parser.add_argument("--limits", default="{}", help="JSON: those of each process, by key")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The engine in the background, as `pie run` starts it.

    When it fails, the last line says why: who started it may not have been connected yet.
    """
    options = parse(arguments)
    folder = settings.engine_folder(options.model)
    settings.make_private(folder.path.parent)
    settings.make_private(folder.path)
    lock = take_lock(folder)
    if lock is None:
        print("another engine of this model is running", file=sys.stderr)
        return FAILED
    worker = WorkerOptions(settings.worker_module(), options.model, options.model_path)
    hub_options = HubOptions(
        worker, folder.hub_address, folder.worker_address, options.log, options.sandbox,
        options.keep_alive, msgspec.json.decode(options.limits, type=Limits),
        options.metrics,
    )  # fmt: skip
    end = asyncio.run(serve(hub_options, folder, Front()))
    if end.failure:
        print("; ".join(filter(None, [end.failure, end.hint])), flush=True)
        return FAILED
    return 0


def _leave(hub: Hub, front: Front, number: int) -> None:
    front.signalled(number)
    hub.stop()


if __name__ == "__main__":
    raise SystemExit(main())
