"""Think markers: the pair around a model's reasoning, found in its template and its tokens."""

from inferlet.runtime.tokenizer import Vocabulary

PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
)


def markers_of(vocabulary: Vocabulary) -> tuple[str, str] | None:
    """The model's open-think and close-think markers; None when it has none."""
    for pair in PAIRS:
        has_tokens = all(vocabulary.token_id(marker) is not None for marker in pair)
        # The close marker: some templates only ever cut old reasoning away.
        if has_tokens or pair[1] in vocabulary.template:
            return pair
    return None
