"""What every launch does, done in the zygote before the first fork, with a program of our own.

A process writes to memory that it shares with all others where it runs code for the first time:
Python specialises bytecode, fills its caches of types and names, and makes dictionaries. What was
written before the fork stays shared. No user's word comes near: the zygote never has one.
"""

import contextlib
import linecache
import socket
import sys
import warnings
from collections.abc import Callable, Iterator

from inferlet.runtime import handles
from ipc import codec, frames
from ipc import messages as m
from ipc.types import EngineInfo, ModelInfo

APP = "rehearsal.py"
# Shaped as programs are. It waits for a message, as those that live long do.
SOURCE = '''"""A rehearsal."""

import json
from inferlet import *


async def main(input: dict) -> dict:
    session.send("ready")
    print(input)
    state, pipe, token = WorkingSet(), Pipeline(), Channel([1], dtype.i32)

    def choose():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best

    forward = ForwardPass()
    forward.embed([1, 2])
    forward.state([state], StateGeometry.folding())
    forward.epilogue(choose)
    pipe.submit(forward)
    message = await session.receive()
    return {"text": message, "more": json.dumps([1, 2.5, None, True])}
'''


def play(run: Callable[[int], None]) -> m.FromInferlet:
    """A process's whole life, from its first frame to its last word, which is returned."""
    ours, theirs = socket.socketpair()
    with ours, theirs, _restored():
        ours.sendall(_first_frames())
        run(theirs.fileno())
        *_, (_, body) = frames.FrameReader().feed(ours.recv(1 << 20))
    return codec.decode_from_inferlet(body)


def _first_frames() -> bytes:
    model = ModelInfo("rehearsal", "rehearsal", "", 8, 8, 2, 8, 4096, "float32")
    engine = EngineInfo(codec.PROTOCOL_VERSION, 16, 64)
    launch = m.Launch("p0", APP, SOURCE, {}, '{"prompt": "a"}', {}, model, engine)
    messages = (launch, m.Inbox(False, "go on"))
    return b"".join(frames.pack(frames.HUB, codec.encode(message)) for message in messages)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Leaves nothing of a process's life but warm memory."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    streams, warn = (sys.stdout, sys.stderr), warnings._warn_unawaited_coroutine
    try:
        yield
    finally:
        sys.meta_path[:] = finders
        sys.stdout, sys.stderr = streams
        warnings._warn_unawaited_coroutine = warn
        for name in set(sys.modules) - modules:  # what the SDK itself loads late may stay
            if getattr(sys.modules[name], "__file__", None) == APP:
                del sys.modules[name]
        linecache.cache.pop(APP, None)
        handles.install(None)
