"""The process has no terminal: what the app prints becomes output messages."""

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
        self._emit(text)
        if "\n" in text and time.monotonic() - self._last_flush > PATIENCE:
            self.flush()
        return len(text)

    def flush(self) -> None:
        self._last_flush = time.monotonic()
        self._flush()


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`, for what writes bytes."""

    def __init__(self, text: OutputStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)
