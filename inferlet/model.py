"""Facts of the served model, and its tokenizer. Nothing here waits for the engine."""

from collections.abc import Sequence

from inferlet import naming
from inferlet.runtime import handles
from inferlet.runtime.cells import integers

__all__ = [
    "architecture", "channel_capacity", "context_length", "decode", "encode", "frame_size",
    "kv_page_size", "layers", "max_embed_length", "name", "output_vocab_size", "outputs",
    "run_ahead_window",
]  # fmt: skip


def encode(text: str) -> list[int]:
    """Token ids of `text`, no BOS or EOS added. Special tokens' spellings become those tokens."""
    if not isinstance(text, str):
        raise TypeError(f"`model.encode` got {naming.kind(text)}; it takes a str")
    return handles.current().vocabulary.encode(text)


def decode(tokens: Sequence[int]) -> str:
    """The tokens' bytes as UTF-8. Invalid bytes become U+FFFD; special tokens keep their spelling."""
    vocabulary = handles.current().vocabulary
    pieces = []
    for token in integers(tokens, "`tokens`"):
        piece = vocabulary.token_bytes(token)
        if piece is None:
            raise ValueError(f"token id {token} has no spelling in this model's vocabulary")
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")


def name() -> str:
    """Name under which the model is served."""
    return handles.current().model.name


def architecture() -> str:
    """Architecture identifier."""
    return handles.current().model.architecture


def output_vocab_size() -> int:
    """Width of every logits row."""
    return handles.current().model.output_vocab_size


def kv_page_size() -> int:
    """Tokens in one KV page."""
    return handles.current().engine.page_size


def frame_size() -> int:
    """Passes that the scheduler runs back to back in one frame."""
    return handles.current().engine.frame_size


def channel_capacity() -> int:
    """Ring size that a host-read channel needs so that `run_ahead` is never throttled."""
    return handles.current().engine.channel_capacity


def run_ahead_window() -> int:
    """Passes of one run that may be in flight."""
    return handles.current().engine.run_ahead_window


def layers() -> int:
    """Number of transformer blocks."""
    return handles.current().model.layers


def outputs() -> list[str]:
    """Names that `intrinsics.output` accepts."""
    return list(handles.current().model.outputs)


def max_embed_length() -> int:
    """Most rows that one pass may embed."""
    return handles.current().engine.max_embed_length


def context_length() -> int:
    """Positions are `0 .. context_length() - 1`."""
    return handles.current().model.context_length
