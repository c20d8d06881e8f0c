"""Think markers: the pair around a model's reasoning, found in its template and its tokens."""

import re

from inferlet.runtime.tokenizer import Vocabulary

PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|think|>", "<|end|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
)
_CONTROL = re.compile(r"<\|[^|<>]+\|>")


def markers_of(vocabulary: Vocabulary) -> tuple[str, str] | None:
    """The model's open-think and close-think markers; None when it has none."""
    for pair in PAIRS:
        if _are_tokens(pair, vocabulary) or _are_told(pair, vocabulary.template):
            return pair
    return None


def _are_tokens(pair: tuple[str, str], vocabulary: Vocabulary) -> bool:
    """Each marker is one token, or a word between control tokens."""
    return all(
        vocabulary.token_id(piece) is not None
        for marker in pair
        for piece in _CONTROL.findall(marker) or [marker]
    )


def _are_told(pair: tuple[str, str], template: str) -> bool:
    """A template writes a line's end as an escape. One of a model that opens with `<think>` may
    only ever cut old reasoning away."""
    opener, closer = (marker.rstrip("\n") for marker in pair)
    return closer in template and (opener in template or opener == PAIRS[0][0])
