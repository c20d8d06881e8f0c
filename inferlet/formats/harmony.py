"""Harmony (gpt-oss): a reply is a row of messages on channels, of which a history keeps the last.

Its turns are cut as all others; its template refuses replies that still hold their channels.
"""

from inferlet.runtime.tokenizer import Vocabulary

CHANNEL, MESSAGE, END = "<|channel|>", "<|message|>", "<|end|>"


def final_of(reply: str, vocabulary: Vocabulary) -> str:
    """The text of the last message of a reply; a reply without channels as it is."""
    if CHANNEL not in vocabulary.template or CHANNEL not in reply:
        return reply
    last = reply.rpartition(END)[2] if MESSAGE in reply.rpartition(END)[2] else reply
    return last.rpartition(MESSAGE)[2]
