"""One app against the fake engine, in a process that `pie check` and `pie inspect` start and confine.

Speaks as any inferlet does, to a reader that wants to know what was recorded: a JSON message for
each pass when it is bound, some for what was assumed and for what was not awaited, and as the last
word what `main` came to.
"""

import asyncio
import functools
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlet import chat, formats
from inferlet.errors import InferletError, with_hint
from inferlet.runtime import handles, unawaited
from inferlet.runtime.app import App, to_json
from inferlet.runtime.identity import facts_of, identity_of
from inferlet.runtime.outbox import Outbox
from inferlet.runtime.source import at
from inferlet.runtime.stdio import OutputStream
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.runtime.wire import Wire
from inferlet.testing.assumed import SAMPLE, Files, Input
from inferlet.testing.ending_model import EndingModel
from inferlet.testing.harness import Client, Hub, byte_vocabulary
from ipc import codec
from ipc import messages as m
from ipc.eta.check import check
from ipc.eta.text import listing

if TYPE_CHECKING:
    from inferlet.channel import Channel
    from inferlet.eta.trace import Traced
    from inferlet.runtime.binding import BoundPass

_vocabulary: Vocabulary | None = None


def preload(model_path: str | None) -> None:
    """The tokenizer of a model, for all checks; without one every byte is a token."""
    global _vocabulary
    _vocabulary = Vocabulary.load(Path(model_path)) if model_path else None
    if _vocabulary is not None:
        formats.warm(_vocabulary)


def run(fd: int) -> None:
    """The life of the process. Never raises."""
    with asyncio.Runner() as runner:
        check_ = _Check(fd)
        try:
            runner.run(check_.live())
        except (SystemExit, KeyboardInterrupt) as error:
            runner.run(check_.end(error))


class _Everybody(dict):
    """Other processes: each id is one, and takes what it is sent."""

    def get(self, id: str, default: Any = None) -> Any:
        return super().get(id, self)

    def take(self, message: m.Inbox) -> str:
        return ""


class _App(App):
    """As `App`, with an input that lacks nothing."""

    def __init__(self, launch: m.Launch) -> None:
        super().__init__(launch)
        self.input = Input(json.loads(launch.input))

    def _arguments(self, main: Any) -> tuple[Any, ...]:
        return tuple(self.input for _ in super()._arguments(main))

    def place_of(self, error: BaseException) -> tuple[str, int]:
        """File and line of the app's own code where the error came up."""
        if isinstance(error, SyntaxError) and error.filename in self.filenames:
            return error.filename, error.lineno or 0
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename in self.filenames:
                return frame.filename, frame.lineno or 0
        return "", 0


class _Check:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._app: _App | None = None
        self._outbox: Outbox | None = None
        self._wire: Wire | None = None
        self._forgotten: list[dict[str, Any]] = []  # faults: what was not awaited

    async def live(self) -> None:
        launched = asyncio.get_running_loop().create_future()
        self._wire = Wire(self._fd, lambda _, body: launched.set_result(body), sys.exit)
        launch = codec.decode_to_inferlet(await launched)
        self._outbox = Outbox(self._wire.write)
        for name in ("stdout", "stderr"):
            emit = functools.partial(self._outbox.print, name)
            setattr(sys, name, OutputStream(name, emit, self._outbox.flush_text))
        self._app = _App(launch)
        client = Client([SAMPLE], later_files=[SAMPLE.encode()])
        facts = _model(launch)
        model = EndingModel(facts["info"]["output_vocab_size"], facts["vocabulary"])
        hub = Hub(client, model, peers=_Everybody(), **facts)
        hub.runtime.conversation.files = Files(launch.files, self._app.input.missing)
        hub.runtime.on_bind = lambda bound: self._say("pass", describe(bound))
        handles.install(hub.runtime)
        model.prefer(chat.stop_tokens())
        unawaited.trace_calls()
        unawaited.watch(self._app.filenames, self._forget)
        try:
            with hub.failing_with_the_engine():
                main = self._app._load()
                value = main(*self._app._arguments(main))
                value = await value if inspect.isawaitable(value) else value
                to_json(value)
                del value
        # SystemExit and MemoryError end an app as any error does.
        except BaseException as error:  # noqa: BLE001
            return await self.end(error)
        await self.end(None)

    async def end(self, error: BaseException | None) -> None:
        """The last word. A client that says no more is how an endless conversation ends."""
        if isinstance(error, EOFError):
            traceback.clear_frames(error.__traceback__)
            error = None
        if error is None:
            unawaited.collect()
        self._say("assumed", self._app.input.missing)
        self._say("numbers", self._app.input.numbers)
        self._say("forgotten", self._forgotten)
        self._outbox.close(m.Returned("null") if error is None else self._raised(error))
        self._wire.drain()

    def _raised(self, error: BaseException) -> m.Raised:
        file, line = self._app.place_of(error)
        said = self._app.raised(error)
        fault = {"file": file, "line": line, "type": said.error, "message": said.message}
        if isinstance(error, SyntaxError) and file:
            fault["message"] = error.msg  # its text says the place once more
        trace = "" if isinstance(error, InferletError) else said.traceback
        return m.Raised(said.error, json.dumps(fault), trace)

    def _forget(self, forgotten: unawaited.Forgotten) -> None:
        if forgotten.lines:  # else it is none of the app's
            file, line = forgotten.lines[0]
            message = with_hint(forgotten.what, unawaited.HINT)
            self._forgotten.append(
                {"file": file, "line": line, "type": "NotAwaited", "message": message}
            )

    def _say(self, what: str, value: Any) -> None:
        self._outbox.message(m.Send(True, json.dumps({what: value})))


def _model(launch: m.Launch) -> dict[str, Any]:
    """Vocabulary and facts for the fake engine."""
    if _vocabulary is None:
        bytes_alone = byte_vocabulary()
        size = bytes_alone.tokenizer.get_vocab_size()
        return {"vocabulary": bytes_alone, "info": {"output_vocab_size": size}}
    names = ("name", "architecture", "layers", "context_length", "dtype", "outputs")
    info = {name: getattr(launch.model, name) for name in names}
    size = max(launch.model.output_vocab_size, _vocabulary.tokenizer.get_vocab_size())
    return {"vocabulary": _vocabulary, "info": info | {"output_vocab_size": size}}


# ---- what a pass is


def describe(bound: "BoundPass") -> dict[str, Any]:
    """A bound pass as JSON: what its author would like to see of it."""
    recorded, facts = bound.recorded, facts_of(bound)
    return {
        "number": bound.number,
        "place": bound.label.partition("made at ")[2].rstrip(")"),
        "pipeline": bound.pipeline.number,
        "identity": identity_of(bound).hex(),
        "rows": facts.rows,
        "lanes": facts.lanes,
        "geometry": facts.geometry,
        "readout_counts": list(facts.readout_counts),
        "ports": [
            {"kind": port.kind, "channel": port.channel, "shape": list(port.shape)}
            for port in facts.ports
        ],
        "channels": [_channel(bound, channel) for channel in bound.effects],
        "stages": {
            name: _stage(stage)
            for name in ("prologue", "epilogue")
            if (stage := getattr(recorded, name))
        },
    }


def _channel(bound: "BoundPass", channel: "Channel") -> dict[str, Any]:
    effect = bound.effects[channel]
    return {
        "number": channel._number,
        "name": channel.name if channel._is_named else "",
        "place": at(channel._line),
        "type": str(channel._cell),
        "capacity": channel._capacity,
        "seeded": channel._is_seeded,
        "puts": effect.puts,
        "reads": effect.reads,
    }


def _stage(stage: "Traced") -> dict[str, Any]:
    slots = [channel._cell for channel in stage.channels]
    return {
        "listing": listing(stage.program, check(stage.program, slots, stage.outputs)),
        "channels": [channel._number for channel in stage.channels],
        "lines": [at(stage.source[node]) for node in range(len(stage.program.nodes))],
        "result": _structure(stage.structure),
        "id": stage.program_id.hex(),
    }


def _structure(node: Any) -> Any:
    """The structure of a result, tensors by their place among the results."""
    if isinstance(node, tuple):
        kind, children = node
        if kind == "dict":
            return {str(key): _structure(child) for key, child in children}
        return [_structure(child) for child in children]
    return node
