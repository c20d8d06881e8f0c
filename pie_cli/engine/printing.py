"""What one process prints: texts that come in a row are joined. Bounded; knows nothing of time."""

from collections.abc import Callable

MAX_JOINED = 64 << 10  # characters, from which on a text is told


class Printing:
    """Tells of `stream` and text at the latest when `flush` is called, in the order of `add`."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._texts: list[str] = []
        self._size = 0
        self._stream = ""

    def add(self, stream: str, text: str) -> None:
        if stream != self._stream:
            self.flush()
            self._stream = stream
        self._texts.append(text)
        self._size += len(text)
        if self._size >= MAX_JOINED:
            self.flush()

    def flush(self) -> None:
        if not self._texts:
            return
        text, self._texts, self._size = "".join(self._texts), [], 0
        self._tell(self._stream, text)
