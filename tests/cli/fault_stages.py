"""Stages of a run at which a part may be killed: how a run gets there, and is held there.

Each app says `here PID` once it is at its stage, and ends with "done" when it is told "end".
"""

from dataclasses import dataclass

_HEAD = """
import asyncio, contextlib, os
from inferlet import *

def here():
    session.send(f"here {os.getpid()}\\n")

async def until_told():
    while await session.receive() != "end":
        pass
"""
_ALONGSIDE = """
async def main(input):
    work = asyncio.ensure_future(stage())
    await until_told()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return "done"
"""


def _alongside(stage: str) -> str:
    """An app that does `stage` until it is told to end."""
    lines = "".join(f"    {line}\n" for line in stage.strip().splitlines())
    return f"{_HEAD}\nasync def stage():\n{lines}{_ALONGSIDE}"


@dataclass(frozen=True)
class Stage:
    """`has_state`: in the worker, so that the run ends with it."""

    source: str
    has_state: bool = False


_RETURNS = """
from inferlet.runtime import launch
launch.GRACE = 600

async def stage():
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        here()
        await until_told()

async def main(input):
    asyncio.ensure_future(stage())
    await asyncio.sleep(0)
    return "done"
"""
_STAYS = """
import time

async def main(input):
    os._exit = lambda code: time.sleep(600)
    here()
    return "done"
"""
_DECODES = """
ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
def step():
    t = reduce_argmax(intrinsics.output(0, "logits"))
    tok.put(t)
    return t
pre, dec = ForwardPass(), ForwardPass()
pre.embed([1, 2, 3])
dec.embed(tok)
for p in (pre, dec):
    p.state([ws], StateGeometry.folding())
pre.epilogue(step), dec.epilogue(step)
pipe.submit(pre)
run = pipe.run_ahead(dec, 4000, lambda t: True)
await asyncio.sleep(0.05)
here()
await run
"""

STAGES = {
    "receiving": Stage(_alongside("here()")),
    "computing": Stage(_alongside("""
here()
while True:
    sum(range(20_000))
    await asyncio.sleep(0)
""")),
    "decoding": Stage(_alongside(_DECODES), has_state=True),
    "sending": Stage(_alongside("""
here()
while True:
    session.send("x" * 2000 + "\\n")
    await asyncio.sleep(0.0005)
""")),
    "sending a file": Stage(_alongside("""
from inferlet.runtime import handles
from ipc import messages as m
handles.current().outbox.message(m.SendFilePart(1 << 20, b"x" * (1 << 18)))
here()
""")),
    "sending to another": Stage(_alongside("""
here()
i = 0
while True:
    session.send_to("bystander", {"i": i})
    i += 1
    await asyncio.sleep(0.0005)
""")),
    "returning": Stage(_HEAD + _RETURNS),
    "leaving": Stage(_HEAD + _STAYS),
}  # fmt: skip

# Beside each point: what is said to it, before and after, and what another process says to it.
BYSTANDER = """
from inferlet import session
async def main(input):
    texts, numbers = [], []
    session.send("ready")
    while (message := await session.receive()) != "end":
        (texts if isinstance(message, str) else numbers).append(message)
    return [texts, [n["i"] for n in numbers] == list(range(len(numbers)))]
"""
HELLO = "def main(input): return 'hello'"
