"""The start of an inferlet: what the zygote loads before forking, and what its child runs."""

import asyncio
import functools
import os
import sys
from pathlib import Path

from inferlet import formats
from inferlet.grammars import engine
from inferlet.runtime import handles, rehearsal, unawaited
from inferlet.runtime.app import App
from inferlet.runtime.conversation import Conversation, Exchange
from inferlet.runtime.handles import Runtime
from inferlet.runtime.inbox import Inbox
from inferlet.runtime.outbox import Outbox
from inferlet.runtime.stdio import OutputStream
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.runtime.wire import Wire
from ipc import codec, frames
from ipc import messages as m
from ipc.errors import ProtocolError

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a child has no threads

GRACE = 2.0  # seconds in which cancelled tasks of the app may still do something

_vocabulary: Vocabulary | None = None


def preload(model_path: str | None) -> None:
    """Loads tokenizer and chat template, to be shared by all children."""
    global _vocabulary
    _vocabulary = None if model_path is None else Vocabulary.load(Path(model_path))
    if _vocabulary is not None:
        formats.warm(_vocabulary)
        engine.warm(_vocabulary)


def rehearse() -> None:
    """A whole life, played before the first fork."""
    if _vocabulary is not None:
        rehearsal.play(run)


def run(fd: int) -> None:
    """The life of one inferlet: from the Launch on `fd` to its last word. Never raises."""
    # Named, the loop is made at once: no policy is asked, and none is told.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        process = _Process(fd)
        try:
            runner.run(process.live())
        except asyncio.CancelledError:
            pass  # the hub is gone: nobody would read a last word
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised in a task of the app: asyncio ends its loop for these.
            runner.run(process.die(error))


class _Process:
    """One inferlet from its first frame to its last."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._wire: Wire | None = None
        self._outbox: Outbox | None = None
        self._app: App | None = None
        self._on_launch: asyncio.Future[m.Launch] | None = None
        self._inbox: Inbox | None = None
        self._main: asyncio.Task | None = None
        self._streams: list[OutputStream] = []
        self._failure: BaseException | None = None  # of taking what the hub sent
        self._has_ended = False

    async def live(self) -> None:
        loop = asyncio.get_running_loop()
        self._on_launch = loop.create_future()
        self._main = asyncio.current_task()
        self._wire = Wire(self._fd, self._on_frame, self._on_end)
        try:
            launch = await self._on_launch
        except asyncio.CancelledError:
            return self._say_failure()
        self._app = App(launch)
        unawaited.watch(self._app.filenames, self._warn)
        await self._end(await self._app.run())

    def _warn(self, forgotten: unawaited.Forgotten) -> None:
        if not self._has_ended:
            self._streams[1].write(f"{forgotten.warning}\n")

    def _say_failure(self) -> None:
        """The last word of a process that could not take its Launch."""
        if self._failure is None:
            return  # the hub is gone: nobody would read it
        kind = type(self._failure).__name__
        Outbox(self._wire.write).close(m.Raised(kind, str(self._failure), ""))
        self._wire.drain()

    def _start(self, launch: m.Launch) -> None:
        """At once, because frames may follow the first without a pause."""
        self._outbox = Outbox(self._wire.write)
        runtime = make_runtime(self._outbox, launch, _vocabulary, self._exchange)
        self._inbox = Inbox(runtime)
        handles.install(runtime)
        self._redirect_output()
        self._on_launch.set_result(launch)

    def _exchange(self) -> None:
        """Waits for the answer to `send_to`; everything else that comes is handled after."""
        self._wire.wait_for(self._take_answer)

    def _take_answer(self, kind: int, body: bytes) -> bool:
        if kind != frames.HUB:
            return False
        message = codec.decode_to_inferlet(body)
        if isinstance(message, m.SentTo):
            self._inbox.on_frame(kind, body)
        return isinstance(message, m.SentTo)

    async def die(self, error: BaseException) -> None:
        if self._app is not None:
            await self._end(self._app.raised(error))

    async def _end(self, last_word: m.Returned | m.Raised) -> None:
        """Nothing follows the last word, so the app's own tasks end first."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._failure is not None:
            last_word = self._app.raised(self._failure)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=GRACE)
        handles.current().close()
        for stream in self._streams:
            stream.end()
        try:
            self._outbox.close(last_word)
        except ValueError as error:  # longer than a frame
            self._outbox.close(m.Raised("ValueError", f"`main` returned {error}", ""))
        self._wire.drain()
        if any(not task.done() for task in others):  # the loop's own end would wait for them
            os._exit(0)

    def _redirect_output(self) -> None:
        outbox = self._outbox
        for name in ("stdout", "stderr"):
            emit = functools.partial(outbox.print, name)
            self._streams.append(OutputStream(name, emit, outbox.flush_text))
            setattr(sys, name, self._streams[-1])

    def _on_frame(self, kind: int, body: bytes) -> None:
        if self._inbox is not None:
            if self._inbox.on_frame(kind, body):
                self._main.cancel()  # it may still do its last things, and even return
            return
        message = codec.decode_to_inferlet(body) if kind == frames.HUB else None
        if not isinstance(message, m.Launch):
            raise ProtocolError("the first frame is no Launch")
        self._start(message)

    def _on_end(self, error: BaseException | None) -> None:
        """Nothing more is read: the hub is gone, or `error` came up."""
        self._failure = error
        if self._main and not self._main.done():
            self._main.cancel()
            if error is not None:
                asyncio.get_running_loop().call_later(GRACE, self._insist)

    def _insist(self) -> None:
        """`main` was cancelled, since nothing more can reach it, and goes on all the same."""
        if not self._has_ended and self._outbox is not None:
            self._has_ended = True
            self._outbox.close(self._app.raised(self._failure))
            self._wire.drain()
            os._exit(0)


def make_runtime(
    outbox: Outbox,
    launch: m.Launch,
    vocabulary: Vocabulary | None,
    exchange: Exchange = lambda: None,
) -> Runtime:
    """The Runtime of a launch. Loads the vocabulary when nothing was preloaded."""
    if vocabulary is None:
        vocabulary = Vocabulary.load(Path(launch.model.path))
    conversation = Conversation(outbox, launch.process, launch.files, exchange)
    return Runtime(outbox, launch.model, launch.engine, vocabulary, conversation)
