"""The text of a reply as it comes, for the decoders that look for markers in it.

A control token has no text: where it is part of a marker, one character that no text holds stands
for it, in the marker and in the stream. So a marker that is a control token is never found in
what other tokens spell.
"""

import codecs
from collections.abc import Sequence

from inferlet.runtime.tokenizer import Vocabulary

CUT = "\ud800"  # stands for a control token of no marker: no marker goes across it


class TextStream:
    """Bytes of an unfinished character wait for the next tokens."""

    def __init__(self, vocabulary: Vocabulary, markers: Sequence[str]) -> None:
        """`markers`: as the template spells them; `self.markers` is how they stand in the text."""
        self._vocabulary = vocabulary
        self._stand_ins: dict[int, str] = {}
        for number in sorted(vocabulary.special):
            if any(vocabulary.added[number] in marker for marker in markers):
                self._stand_ins[number] = chr(ord(CUT) + 1 + len(self._stand_ins))
        self.markers = tuple(map(self._in_stream, markers))
        self.reset()

    def reset(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, tokens: Sequence[int]) -> str:
        """The new text, with stand-ins in the place of control tokens."""
        return "".join(map(self._text_of, tokens))

    def _text_of(self, token: int) -> str:
        piece = self._vocabulary.token_bytes(token)
        if piece is not None and token not in self._vocabulary.special:
            return self._utf8.decode(piece)
        pending = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return pending + self._stand_ins.get(token, CUT)

    def _in_stream(self, marker: str) -> str:
        for number, stand_in in self._stand_ins.items():
            marker = marker.replace(self._vocabulary.added[number], stand_in)
        return marker


def without_stand_ins(text: str) -> str:
    """The text alone."""
    return "".join(c for c in text if not "\ud800" <= c <= "\udfff")
