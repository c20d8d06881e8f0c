"""Think markers: the pair around a model's reasoning, found in its template and its tokens."""

from inferlet.runtime.tokenizer import Vocabulary

PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
)


def markers_of(vocabulary: Vocabulary) -> tuple[str, str] | None:
    """The model's open-think and close-think markers; None when it has none."""
    for pair in PAIRS:
        has_tokens = all(vocabulary.token_id(marker) is not None for marker in pair)
        # Templates of models that open with `<think>` may only ever cut old reasoning away.
        is_told = pair[1] in vocabulary.template and (
            pair[0] in vocabulary.template or pair == PAIRS[0]
        )
        if has_tokens or is_told:
            return pair
    return None
