"""`inferlets/agent.py` on the fake engine: a model that wants to say anything must call a tool."""

import importlib

import numpy as np
import pytest

from inferlet import testing

agent = importlib.import_module("inferlets.agent")
CUE = b"assistant\n"


def model_that_likes(wish):
    """Its likes in order, as far as they are legal; after an answer it speaks freely."""

    def model(tokens):
        text = bytes(token for token in tokens if token < 256)
        said = text.rpartition(CUE)[2]
        logits = np.full(259, -1.0, np.float32)
        if b"<tool_response>" in text:
            reply = b"It is done."
            logits[reply[len(said)] if len(said) < len(reply) else 257] = 9
            return logits
        for rank, letter in enumerate(wish):
            logits[ord(letter)] = 9 - rank / 100
        logits[list(b" \t\r\n")] -= 1  # legal without a use, up to 64 in a row
        return logits

    return model


@pytest.mark.parametrize(
    ("wish", "call", "value"),
    [
        ("}m,14", ["multiply", '{"a":1,"b":1}'], 1),
        ("}a,7", ["add", '{"a":7,"b":7}'], 14),
    ],
)
def test_the_first_reply_is_a_call_of_a_tool_whatever_the_model_wants(wish, call, value):
    got = testing.run(agent.main, {"question": "?"}, model=model_that_likes(wish))
    assert got == {"call": call, "value": value, "answer": "It is done."}
