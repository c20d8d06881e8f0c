"""ChatML: `<|im_start|>role\\ncontent<|im_end|>\\n`. Qwen, SmolLM and many fine-tunes.

Turns are cut out of the template as everywhere; this is for what a silent template leaves open.
"""

from inferlet.runtime.tokenizer import Vocabulary

OPEN, CLOSE = "<|im_start|>", "<|im_end|>"


def turn(role: str, content: str) -> str:
    return f"{OPEN}{role}\n{content}{CLOSE}\n"


class ChatML:
    """How the family is known."""

    @staticmethod
    def fits(vocabulary: Vocabulary) -> bool:
        ids = (vocabulary.token_id(OPEN), vocabulary.token_id(CLOSE))
        return OPEN in vocabulary.template and CLOSE in vocabulary.template and None not in ids
