"""Runs an inferlet's `main` in the test's own process, against the fake engine.

from inferlet import testing
value = testing.run(main, {"prompt": "hi"}, model=lambda tokens: 7)
"""

import asyncio
import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from inferlet.runtime import handles
from inferlet.runtime.app import to_json
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
MAX_INBOX = 10_000  # messages
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
        later_files: Sequence[bytes] = (),
    ) -> None:
        """`messages` are in the inbox at the start. `stays`: the client's end is not closed.

        `files` are attached, `later_files` are for `session.receive_file`.
        """
        self.inbox = list(messages)
        self.files = dict(files or {})
        self.later_files = list(later_files)
        self.stays = stays
        self.messages: list[Any] = []  # what the inferlet sent
        self.files_sent: list[bytes] = []  # by the inferlet
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
        id: str = "test",
        peers: "dict[str, Hub] | None" = None,
    ) -> None:
        """`cells_first`: cells that a channel holds come ahead of word of their fires, as from an
        engine that has launched more than it has reported. `peers`: those that `send_to` reaches."""
        self.client = client
        self.id = id
        self.peers = {} if peers is None else peers
        self.peers[id] = self
        self._files_part = bytearray()
        self._inbox_size = 0
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
        conversation = Conversation(outbox, id, client.files)
        self.runtime = Runtime(outbox, self.info, self.engine, vocabulary, conversation)
        self._inbox = Inbox(self.runtime)
        self._is_delivering = False
        self._cells_first = cells_first
        self._main: asyncio.Task | None = None  # ends when the engine breaks
        self._failure: Exception | None = None  # of the test's model, or of the engine itself

    @contextlib.contextmanager
    def failing_with_the_engine(self) -> Iterator[None]:
        """Raises what broke the engine, in the task that would wait for it for ever."""
        self._main = asyncio.current_task()
        try:
            yield
        except BaseException:
            if self._failure is None:
                raise
            self._main.uncancel()
            raise self._failure from None
        if self._failure is not None:
            raise self._failure

    def _break(self, error: Exception) -> None:
        """A model that raised ends the test: nothing would settle the fires that wait for it."""
        if self._main is None:
            raise error
        self._failure = error
        if self._main is not asyncio.current_task():
            self._main.cancel()

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
                self._do(codec.decode_commands(body))
            else:
                self._on_message(codec.decode_from_inferlet(body))

    def _do(self, commands: Sequence[m.Command]) -> None:
        for command in commands:
            self.commands.append(command)
            if self._failure is not None:
                continue
            try:
                self.worker.do(command)
            except Exception as error:  # noqa: BLE001 - the test's own model may raise anything
                self._break(error)
        self._deliver_later()

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
            case m.Received(count):
                self._inbox_size -= count
            case m.SendTo(process):
                self.to_inferlet(m.SentTo(self._send_to(process, message)))
            case m.SendFilePart(_, data, sha256):
                self._files_part += data
                if sha256:
                    self.client.files_sent.append(bytes(self._files_part))
                    self._files_part.clear()
            case m.ReceivingFile():
                asyncio.get_running_loop().call_soon(self._give_file)

    def _send_to(self, process: str, message: m.SendTo) -> str:
        peer = self.peers.get(process)
        if peer is None:
            return "unknown"
        return peer.take(m.Inbox(message.is_json, message.text))

    def take(self, message: m.Inbox) -> str:
        """A message of another inferlet; the outcome of its `send_to`."""
        if self._inbox_size >= MAX_INBOX:
            return "full"
        self._inbox_size += 1
        self.to_inferlet(message)
        return ""

    def _give_file(self) -> None:
        if self.client.later_files:
            data = self.client.later_files.pop(0)
            self.to_inferlet(m.FilePart(len(data), data))
        elif not self.client.stays:
            self.to_inferlet(m.FilesClosed())

    def _fill_inbox(self) -> None:
        for message in self.client.inbox:
            is_json = not isinstance(message, str)
            self._inbox_size += 1
            self.to_inferlet(m.Inbox(is_json, json.dumps(message) if is_json else message))
        if not self.client.stays:
            self.to_inferlet(m.InboxClosed())


async def run_with(hub: Hub, main: Callable[..., Any], input: Any = None) -> Any:
    """The value of `main` as it travels, in the running loop."""
    handles.install(hub.runtime)
    try:
        return await _live(hub, main, input)
    finally:
        handles.install(None)


async def _live(hub: Hub, main: Callable[..., Any], input: Any) -> Any:
    with hub.failing_with_the_engine():
        try:
            value = main({} if input is None else input) if _takes_input(main) else main()
            if inspect.isawaitable(value):
                value = await value
            return json.loads(to_json(value))
        finally:
            hub.peers.pop(hub.id, None)
            hub.runtime.close()
            hub.runtime.outbox.flush()


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


def run_together(
    apps: Mapping[str, tuple[Callable[..., Any], Any]],
    *,
    model: Model | None = None,
    clients: Mapping[str, Client] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Runs several inferlets at once, `{id: (main, input)}`, and gives their values by id.

    They reach each other by `session.send_to`. A client that is not given stays silent.
    """

    async def one(id: str, peers: dict[str, Hub]) -> Any:
        main, input = apps[id]
        handles.install_for_task(peers[id].runtime)
        return await _live(peers[id], main, input)

    async def all_of_them() -> list[Any]:
        peers: dict[str, Hub] = {}
        for id in apps:
            client = (clients or {}).get(id) or Client(stays=True)
            Hub(client, model, id=id, peers=peers, **options)
        return await asyncio.gather(*(asyncio.create_task(one(id, peers)) for id in apps))

    return dict(zip(apps, asyncio.run(all_of_them()), strict=True))


def _takes_input(main: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return any(p.kind not in kinds for p in inspect.signature(main).parameters.values())


_INFO = {
    "name": "fake", "architecture": "fake", "path": "", "layers": 2, "width": 8,
    "context_length": 4096, "dtype": "float32",
}  # fmt: skip
_ENGINE = {"protocol": codec.PROTOCOL_VERSION, "page_size": 16, "num_pages": 1024}
