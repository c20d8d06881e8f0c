"""Harmony (gpt-oss): a reply is a row of messages on channels, of which a history keeps the final.

    <|channel|>analysis<|message|>text<|end|><|start|>assistant<|channel|>final<|message|>text

Its turns are cut as all others; but its template refuses replies that still hold their channels.
"""

import re

from inferlet.runtime.tokenizer import Vocabulary

CHANNEL = "<|channel|>"
_MESSAGE = re.compile(
    r"<\|channel\|>(\w+)[^<]*(?:<\|constrain\|>\w+)?<\|message\|>"
    r"(.*?)(?:<\|(?:end|return|call)\|>|\Z)",
    re.DOTALL,
)


def final_of(reply: str, vocabulary: Vocabulary) -> str:
    """The text of a reply's final message, "" if it has come to none; a reply without channels
    as it is."""
    if CHANNEL not in vocabulary.template or CHANNEL not in reply:
        return reply
    messages = dict(_MESSAGE.findall(reply))  # of a channel, the last
    return messages.get("final", "") if messages else reply
