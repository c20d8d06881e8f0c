"""The text of a reply as it comes, for the decoders that look for markers in it."""

import codecs
from collections.abc import Sequence

from inferlet.runtime.tokenizer import Vocabulary

CUT = "\ud800"  # stands for a control token: no text holds it, so no marker goes across it


class TextStream:
    """Bytes of an unfinished character wait for the next tokens."""

    def __init__(self, vocabulary: Vocabulary, markers: Sequence[str]) -> None:
        """`markers`: special tokens that are part of one of these keep their spelling."""
        self._vocabulary = vocabulary
        self._markers = markers
        self.reset()

    def reset(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, tokens: Sequence[int]) -> str:
        """The new text, with `CUT` in the place of control tokens."""
        return "".join(map(self._text_of, tokens))

    def _text_of(self, token: int) -> str:
        piece = self._vocabulary.token_bytes(token)
        if piece is not None and token not in self._vocabulary.special:
            return self._utf8.decode(piece)
        pending = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        spelling = (piece or b"").decode("utf-8", "replace")
        is_marker = spelling and any(spelling in marker for marker in self._markers)
        return pending + (spelling if is_marker else CUT)
