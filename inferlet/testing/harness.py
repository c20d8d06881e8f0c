"""Runs an inferlet's `main` in the test's own process, against the fake engine.

from inferlet import testing
value = testing.run(main, {"prompt": "hi"}, model=lambda tokens: 7)
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from inferlet.runtime import handles
from inferlet.runtime.conversation import Conversation
from inferlet.runtime.handles import Runtime
from inferlet.runtime.inbox import Inbox
from inferlet.runtime.outbox import Outbox
from inferlet.runtime.tokenizer import BYTE_ALPHABET, Vocabulary
from inferlet.testing.fake_worker import FakeWorker, Model, SeededModel
from ipc import codec, frames
from ipc import messages as m
from ipc.errors import Failure
from ipc.types import EngineInfo, ModelInfo

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


def byte_vocabulary(template: str = CHATML) -> Vocabulary:
    """One token a byte (ids 0 to 255 are the bytes), and the special tokens of ChatML."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    by_byte = sorted(alphabet, key=lambda c: BYTE_ALPHABET[c])
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(by_byte)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return Vocabulary(tokenizer, {"eos_token": "<|im_end|>"}, template)


class Client:
    """The other end of the inferlet's session."""

    def __init__(
        self,
        messages: Sequence[Any] = (),
        *,
        files: Mapping[str, bytes] | None = None,
        stays: bool = False,
    ) -> None:
        """`messages` are in the inbox at the start. `stays`: the client's end is not closed."""
        self.inbox = list(messages)
        self.files = dict(files or {})
        self.stays = stays
        self.messages: list[Any] = []  # what the inferlet sent
        self.has_been_asked = False


class Hub:
    """Everything outside of the inferlet: frames come in, events go back in later ticks."""

    def __init__(
        self,
        client: Client,
        model: Model | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        info: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
        faults: Mapping[int, Failure] | None = None,
        cells_first: bool = False,
    ) -> None:
        """`cells_first`: cells that a channel holds come ahead of word of their fires, as from an
        engine that has launched more than it has reported."""
        self.client = client
        vocabulary = vocabulary or byte_vocabulary()
        size = vocabulary.tokenizer.get_vocab_size()
        self.info = ModelInfo(
            **{**_INFO, "vocab_size": size, "output_vocab_size": size, **(info or {})}
        )
        self.engine = EngineInfo(**{**_ENGINE, **(engine or {})})
        self.commands: list[m.Command] = []  # all that came, in order
        self.num_frames = self.num_fired = 0  # frames of commands; fires reported, undone ones too
        self.is_silent = False  # what the engine says is lost
        self._reader = frames.FrameReader()
        self._events: list[m.Event] = []
        model = model or SeededModel(self.info.output_vocab_size)
        self.worker = FakeWorker(self.info, self.engine, model, self._queue, faults)
        outbox = Outbox(self._on_bytes)
        conversation = Conversation(outbox, "test", client.files)
        self.runtime = Runtime(outbox, self.info, self.engine, vocabulary, conversation)
        self._inbox = Inbox(self.runtime)
        self._is_delivering = False
        self._cells_first = cells_first

    def to_inferlet(self, message: m.ToInferlet) -> None:
        """A message of the hub, as bytes."""
        self._inbox.on_frame(frames.HUB, codec.encode(message))

    def say(self, event: m.Event) -> None:
        """An event of the engine, as bytes."""
        self.num_fired += isinstance(event, m.Fired)
        if not self.is_silent:
            self._inbox.on_frame(frames.ENGINE, codec.encode_events([event]))

    def _on_bytes(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if kind == frames.ENGINE:
                self.num_frames += 1
                for command in codec.decode_commands(body):
                    self.commands.append(command)
                    self.worker.do(command)
                self._deliver_later()
            else:
                self._on_message(codec.decode_from_inferlet(body))

    def _queue(self, event: m.Event) -> None:
        is_ahead = self._cells_first and isinstance(event, m.Cells)
        self._events.insert(0 if is_ahead else len(self._events), event)

    def _deliver_later(self) -> None:
        if self._events and not self._is_delivering:
            self._is_delivering = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """One event a tick, so that what is in flight is seen to be in flight."""
        self._is_delivering = False
        if self._events:
            self.say(self._events.pop(0))
            self._deliver_later()

    def _on_message(self, message: m.FromInferlet) -> None:
        match message:
            case m.Send(is_json, text):
                self.client.messages.append(json.loads(text) if is_json else text)
            case m.Receiving():
                self.client.has_been_asked = True
                asyncio.get_running_loop().call_soon(self._fill_inbox)

    def _fill_inbox(self) -> None:
        for message in self.client.inbox:
            is_json = not isinstance(message, str)
            self.to_inferlet(m.Inbox(is_json, json.dumps(message) if is_json else message))
        if not self.client.stays:
            self.to_inferlet(m.InboxClosed())


async def run_with(hub: Hub, main: Callable[..., Any], input: Any = None) -> Any:
    """The value of `main` as it travels, in the running loop."""
    handles.install(hub.runtime)
    try:
        value = main({} if input is None else input) if _takes_input(main) else main()
        if inspect.isawaitable(value):
            value = await value
        return json.loads(json.dumps(value, allow_nan=False))
    finally:
        hub.runtime.close()
        hub.runtime.outbox.flush()
        handles.install(None)


def run(
    main: Callable[..., Any],
    input: Any = None,
    *,
    model: Model | None = None,
    client: Client | None = None,
    **options: Any,
) -> Any:
    """Runs `main(input)` and gives its value. `model(tokens)` gives logits, or the next id.

    options: `vocabulary`, `info` and `engine` (fields to change), `faults`.
    """
    hub = Hub(client or Client(), model, **options)
    return asyncio.run(run_with(hub, main, input))


def _takes_input(main: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return any(p.kind not in kinds for p in inspect.signature(main).parameters.values())


_INFO = {
    "name": "fake", "architecture": "fake", "path": "", "layers": 2, "width": 8,
    "context_length": 4096, "dtype": "float32",
}  # fmt: skip
_ENGINE = {"protocol": codec.PROTOCOL_VERSION, "page_size": 16, "num_pages": 1024}
