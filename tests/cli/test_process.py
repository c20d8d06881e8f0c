"""One process as the hub sees it, with the other end of its socket in the test."""

import asyncio
import socket
from contextlib import nullcontext
from types import SimpleNamespace

from ipc import client as c
from ipc import codec, frames
from ipc import messages as m
from ipc.types import EngineInfo, Limits, ModelInfo
from pie_cli.engine.happenings import Happenings
from pie_cli.engine.launcher import Exit, Launched
from pie_cli.engine.metrics import Counts
from pie_cli.engine.process import Process
from pie_cli.engine.quotas import Speakers
from pie_cli.engine.record import Record
from pie_cli.engine.shares import Memory

MODEL = ModelInfo("fake", "fake", "", 256, 256, 1, 8, 1024, "float32")


def test_what_a_process_says_before_its_launch_is_told_comes_after_word_of_it(tmp_path):
    """It is there to be read when the launch is told, and the order is the hub's own."""

    async def run() -> None:
        told: list[c.FromHub] = []
        owner = SimpleNamespace(
            launcher=SimpleNamespace(tier="full", kill=lambda *_: None),
            files_folder=str(tmp_path), happenings=Happenings(), counts=Counts(),
            speakers=Speakers(), memory=Memory(1 << 20, 1 << 20), clients=SimpleNamespace(together=nullcontext),
            tell=lambda client, message: told.append(message) or True,
            told_its_end=lambda process: None,
        )  # fmt: skip
        record = Record("app-1", 1, "app.py", "me", lambda: 1 << 20)
        process = Process(
            owner, record, c.Run(0, "app.py", "", {}, "{}", {}), object(), Limits()
        )  # fmt: skip
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        for message in (m.Send(False, "early"), m.Output("stdout", "early"), m.Returned("1")):
            theirs.sendall(frames.pack(frames.HUB, codec.encode(message)))
        exited = asyncio.get_running_loop().create_future()
        launch = m.Launch("app-1", "app.py", "", {}, "{}", {}, MODEL, EngineInfo(1, 16, 64))
        process.start(Launched(1, ours, exited), launch)
        async with asyncio.timeout(120):
            while not process.ended:
                await asyncio.sleep(0)
        process.exited(Exit(0, 0.0, 0, None))
        theirs.close()
        kinds = [type(message) for message in told]
        assert kinds == [c.Launched, c.Sent, c.Printed, c.Returned]

    asyncio.run(run())
