"""The process has no terminal: what the app prints becomes output messages."""

import codecs
import io
import time
from collections.abc import Callable

Emit = Callable[[str], None]
PATIENCE = 0.1  # seconds that a printed line may wait while the app computes without awaiting


class OutputStream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr`. Text leaves at the end of the event loop's tick, when it is
    long, or with a line that comes after a pause."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, name: str, emit: Emit, flush: Callable[[], None]) -> None:
        self.name = f"<{name}>"
        self._emit, self._flush = emit, flush
        self._last_flush = time.monotonic()
        self.buffer = _Bytes(self)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.end()
        self.put(text)
        return len(text)

    def put(self, text: str) -> None:
        self._emit(text)
        if "\n" in text and time.monotonic() - self._last_flush > PATIENCE:
            self.flush()

    def flush(self) -> None:
        self._last_flush = time.monotonic()
        self._flush()

    def end(self) -> None:
        """No more bytes come: those that are no whole character are shown as their escapes."""
        if rest := self.buffer.take_rest():
            self.put(rest)


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`, for what writes bytes: a character may come in pieces."""

    def __init__(self, text: OutputStream) -> None:
        self._text = text
        self._decoder: codecs.IncrementalDecoder | None = None  # most never write bytes

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        data = memoryview(data).tobytes()
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        text = self._decoder.decode(data)
        self._text.put(text)
        return len(data)

    def take_rest(self) -> str:
        return self._decoder.decode(b"", final=True) if self._decoder else ""
