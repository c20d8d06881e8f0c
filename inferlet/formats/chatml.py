"""ChatML: `<|im_start|>role\\ncontent<|im_end|>\\n`. Qwen, SmolLM and many fine-tunes.

Its turns are cut out of the template as everywhere. Only what a silent template leaves open, a
form for tools, goes by the family.
"""

from inferlet.runtime.tokenizer import Vocabulary

MARKERS = ("<|im_start|>", "<|im_end|>")


def fits(vocabulary: Vocabulary) -> bool:
    """Whether the template is of this family, and its markers are tokens."""
    return all(
        marker in vocabulary.template and vocabulary.token_id(marker) is not None
        for marker in MARKERS
    )
