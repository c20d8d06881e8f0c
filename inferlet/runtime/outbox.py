"""What leaves the process. Everything of one event-loop tick goes out together at its end: the
commands for the worker in one frame, messages and printed text in frames around it, in call order.
"""

import asyncio
from collections.abc import Callable

from inferlet.errors import InferletError, with_hint
from ipc import codec, frames
from ipc import messages as m

Write = Callable[[bytes], None]
LONG_TEXT = 64 << 10  # printed text leaves at once from here on
TEXT_FRAME = 1 << 20  # characters in one output frame
FRAME_ROOM = frames.MAX_FRAME - 64  # bytes of commands in one frame, less the list header
MESSAGE_ROOM = frames.MAX_HUB_FRAME - 64
COMMAND_OVERHEAD = 64  # bytes around the data of one command
PASS_OVERHEAD = 64 << 10  # the same of a pass, with the names of channels


class Outbox:
    """`write` takes whole frames and never fails."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._commands: list[m.Command] = []
        self._text: list[str] = []
        self._text_size = 0
        self._stream = ""
        self._is_scheduled = False
        self._num_received = 0
        self.num_frames = 0  # sent so far: tests count them

    def command(self, command: m.Command) -> None:
        """For the worker, at the end of this tick."""
        self._commands.append(command)
        self._schedule()

    def message(self, message: m.FromInferlet) -> None:
        """For the hub, behind all that was printed before."""
        if (length := _length(message)) > MESSAGE_ROOM:
            # Not encoded at all: msgspec crashes where memory ends while it does.
            raise ValueError(
                f"a message of {length} characters; at most {MESSAGE_ROOM} bytes travel in one "
                "piece"
            )
        body = codec.encode(message)
        if len(body) > MESSAGE_ROOM:
            raise ValueError(
                f"a message of {len(body)} bytes; at most {MESSAGE_ROOM} travel in one piece"
            )
        self._flush_received()
        self.flush_text()
        self._frame(frames.HUB, body)

    def received(self) -> None:
        """The app has one more message of its inbox."""
        self._num_received += 1
        self._schedule()

    def print(self, stream: str, text: str) -> None:
        """What the app wrote to `stdout` or `stderr`."""
        if stream != self._stream:
            self.flush_text()
            self._stream = stream
        self._text.append(text)
        self._text_size += len(text)
        if self._text_size >= LONG_TEXT:
            self.flush_text()
        else:
            self._schedule()

    def flush(self) -> None:
        """Everything leaves now."""
        self._is_scheduled = False
        self._flush_received()
        self.flush_text()
        commands, self._commands = self._commands, []
        if not commands:
            return
        body = codec.encode_commands(commands)
        if len(body) <= FRAME_ROOM:
            self._frame(frames.ENGINE, body)
            return
        for part in _parts(commands):
            self._frame(frames.ENGINE, codec.encode_commands(part))

    def close(self, last_word: m.Returned | m.Raised) -> None:
        """Everything leaves, then the last word. What is said afterwards is lost."""
        self.flush()
        self.message(last_word)
        self._write = lambda data: None

    def flush_text(self) -> None:
        text, self._text, self._text_size = "".join(self._text), [], 0
        # Lone surrogates have no UTF-8: they are shown as their escapes.
        text = text.encode("utf-8", "backslashreplace").decode()
        for start in range(0, len(text), TEXT_FRAME):
            piece = m.Output(self._stream, text[start : start + TEXT_FRAME])
            self._frame(frames.HUB, codec.encode(piece))

    def _flush_received(self) -> None:
        if self._num_received:
            count, self._num_received = self._num_received, 0
            self._frame(frames.HUB, codec.encode(m.Received(count)))

    def _frame(self, kind: int, body: bytes) -> None:
        self.num_frames += 1
        self._write(frames.pack(kind, body))

    def _schedule(self) -> None:
        if self._is_scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # between the loop's end and the last flush
            return
        self._is_scheduled = True
        loop.call_soon(self.flush)


def check_cell(nbytes: int, what: str) -> None:
    """InferletError when a cell is too large to be put by the host."""
    if nbytes + COMMAND_OVERHEAD > FRAME_ROOM:
        raise InferletError(
            with_hint(
                f"{what}: a cell of {nbytes:,} bytes; the host puts at most "
                f"{FRAME_ROOM - COMMAND_OVERHEAD:,} in one cell",
                "put it in several cells, or compute it in a stage",
            )
        )


def check_pass(nbytes: int, what: str) -> None:
    """InferletError when what the host gives a pass once and for all is too large to be sent."""
    room = FRAME_ROOM - PASS_OVERHEAD
    if nbytes > room:
        raise InferletError(
            with_hint(
                f"the mask, constants and lists of {what} have {nbytes:,} bytes; a pass has at "
                f"most {room:,}",
                "put what is large on channels, or compute it in a stage",
            )
        )


def _length(message: m.FromInferlet) -> int:
    """Characters of what the app gave: no more than its bytes."""
    match message:
        case m.Send(_, text) | m.Returned(text) | m.SendTo(_, _, text):
            return len(text)
    return 0


def _parts(commands: list[m.Command]) -> list[list[m.Command]]:
    """The same commands in runs that fit a frame each."""
    parts: list[list[m.Command]] = [[]]
    room = FRAME_ROOM
    for command in commands:
        size = len(codec.encode(command))
        if size > room:
            parts.append([])
            room = FRAME_ROOM
        parts[-1].append(command)
        room -= size
    return parts
