"""A worker that computes nothing and counts what it holds: `PIE_WORKER=tests.cli.fault_worker`.

Every working set is one page. It loads for as long as `$PIE_HOME/hold-worker` exists, and leaves so.
"""

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ipc import codec
from ipc import messages as m
from ipc.codec import PROTOCOL_VERSION
from ipc.errors import ProtocolError
from ipc.transport import ZmqLink
from ipc.types import EngineInfo, ModelInfo

NUM_PAGES = 64
HOLD = "hold-worker"  # a file of the home
GARBLE = "garble"  # another
GARBAGE = {
    "nothing": [b""],
    "garbage": [b"\xc1garbage", b"\xff" * 100],
    "deep lists": [b"\x91" * 1_000_000 + b"\x00"],
    "another type": [codec.encode(["a", 1])],
    "an unknown report": [codec.encode(([[99, 1, 2]], []))],
    "too few parts": [codec.encode(([], [1, 2])), b"x"],
    "too many parts": [codec.encode(([], [])), b"x"],
}


class Holdings:
    """Which process has which working sets."""

    def __init__(self) -> None:
        self._sets: dict[int, set[int]] = {}

    def on_control(self, control: m.Control) -> None:
        match control:
            case m.ProcessStarted(number):
                self._sets[number] = set()
            case m.ProcessEnded(number):
                self._sets.pop(number, None)

    def on_commands(self, number: int, body: bytes) -> None:
        sets = self._sets.get(number)
        for command in codec.decode_commands(body):
            if isinstance(command, m.OpenWorkingSet) and sets is not None:
                sets.add(command.working_set)

    def stats(self) -> m.ProcessStats:
        pages = {number: (0, 0, len(sets)) for number, sets in self._sets.items()}
        free = NUM_PAGES - sum(len(sets) for sets in self._sets.values())
        return m.ProcessStats(pages, free, NUM_PAGES, 0, 0, 0)


def ready(name: str, path: str) -> m.Ready:
    model = ModelInfo(
        name=name, architecture="fake", path=path, vocab_size=256, output_vocab_size=256,
        layers=1, width=8, context_length=1 << 20, dtype="float32",
    )  # fmt: skip
    return m.Ready(model, EngineInfo(PROTOCOL_VERSION, 16, NUM_PAGES), {"load": 0.0})


def garble(link: ZmqLink) -> None:
    """Do once what the file `garble` of the home names."""
    file = Path(os.environ["PIE_HOME"]) / GARBLE
    if not file.exists():
        return
    kind = file.read_text()
    file.unlink()
    if kind == "leaves the link":
        link.close()
        time.sleep(600)
    link.socket.send_multipart(GARBAGE[kind])


def wait_while_held() -> None:
    while (Path(os.environ["PIE_HOME"]) / HOLD).exists():
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("--link", "--model-path", "--model-name"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    link = ZmqLink(options.link, bind=False, is_hub=False)
    link.send([m.Loading(0.5, "loading weights")], [])
    wait_while_held()
    link.send([ready(options.model_name, options.model_path)], [])
    holdings = Holdings()
    while True:
        link.wait(None)
        while (message := link.receive()) is not None:
            controls, batches = message
            # As the worker does it: those that start come first, those that end last.
            for control in controls:
                if isinstance(control, m.ProcessStarted):
                    holdings.on_control(control)
            for number, body in batches:
                with suppress(ProtocolError):
                    holdings.on_commands(number, body)
            for control in controls:
                if isinstance(control, m.ProcessEnded):
                    holdings.on_control(control)
                if isinstance(control, m.Shutdown):
                    wait_while_held()
                    link.close()
                    return 0
            garble(link)
            link.send([holdings.stats()], [])


if __name__ == "__main__":
    sys.exit(main())
