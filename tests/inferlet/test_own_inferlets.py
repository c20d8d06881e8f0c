"""The repository's own inferlets at inputs that a person types, on the fake engine."""

import asyncio

import pytest

from inferlet import testing
from inferlets import agent, chat, sample
from ipc import messages as m
from tests.inferlet.programs import greedy
from tests.inferlet.support import sent
from tests.inferlet.test_programs import answering


def follow(tokens: list[int]) -> int:
    return tokens[-1] + 1


@pytest.mark.parametrize("seed", [1, 2])
def test_temperature_0_is_greedy_for_every_seed(seed):
    words = {"prompt": "abc", "max_tokens": 4}
    value = testing.run(sample.main, words | {"seed": seed, "temperature": 0})
    assert value["tokens"] == testing.run(greedy.main, words)["tokens"]


@pytest.mark.parametrize("temperature", [-1, float("nan")])
def test_a_temperature_below_0_is_refused(temperature):
    words = {"prompt": "abc", "max_tokens": 4, "temperature": temperature}
    with pytest.raises(ValueError, match="temperature is .*; it is at least 0, and 0 is greedy"):
        testing.run(sample.main, words, model=follow)


def test_the_agents_masks_travel_as_packed_words():
    said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    hub = testing.Hub(testing.Client(), answering([*said.encode(), 257]))
    value = asyncio.run(testing.run_with(hub, agent.main, {"question": "2+3?"}))
    assert (value["value"], value["answer"]) == (5, said[:48])
    assert {len(put.data) for put in sent(hub, m.Put)} == {4 * 9}  # 259 tokens


REPLY = [*b"Yes.", 257]


def test_empty_lines_of_a_chat_are_no_turns():
    client = testing.Client(["", "  ", "And now?", ""])
    value = testing.run(chat.main, {"prompt": "Hi"}, model=answering(REPLY), client=client)
    assert value["turns"] == 2
    assert "".join(client.messages) == "Yes.\nYes.\n"


@pytest.mark.parametrize(("limit", "is_cut"), [(1, True), (4, True), (5, False)])
def test_a_chat_says_when_a_reply_was_cut(capsys, limit, is_cut):
    client = testing.Client()
    words = {"prompt": "Hi", "max_tokens": limit}
    testing.run(chat.main, words, model=answering(REPLY), client=client)
    assert "".join(client.messages) == "Yes."[:limit] + "\n"
    note = f"(cut at {limit} tokens: --max-tokens gives more)\n"
    assert capsys.readouterr().out == (note if is_cut else "")
