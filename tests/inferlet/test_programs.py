"""Whole programs of the contract, unchanged, with what a run of each must show."""

import asyncio

import pytest

from inferlet import testing
from inferlet.testing import Client, Hub
from ipc import messages as m
from tests.inferlet.programs import (
    beam,
    best_of,
    constrained,
    greedy,
    guidance,
    sliding_window,
    speculative,
    stream_chat,
    talking,
    tool_agent,
    top_p,
)

REPLY = [*"Hello, wörld".encode(), 257]  # 257: <|im_end|> of the byte vocabulary
CUE = [*b"assistant\n"]


def answering(reply):
    """A model that gives `reply` after each cue, then the end of the turn."""

    def model(tokens):
        start = len(tokens)
        while start and tokens[start - len(CUE) : start] != CUE:
            start -= 1
        said = len(tokens) - start
        return reply[said] if said < len(reply) else 257

    return model


def test_greedy_completion_freezes_all_but_the_last_token():
    value = testing.run(greedy.main, {"prompt": "hello", "max_tokens": 9})
    assert len(value["tokens"]) == 9
    assert value["frozen"] == 5 + 9 - 1


def test_greedy_completion_follows_the_model():
    value = testing.run(greedy.main, {"prompt": "abc", "max_tokens": 4}, model=lambda t: t[-1] + 1)
    assert value["tokens"] == [*b"defg"]
    assert value["text"] == "defg"


def test_top_p_of_zero_is_greedy():
    options = {"prompt": "hello", "max_tokens": 12}
    value = testing.run(top_p.main, {**options, "temperature": 1.0, "top_p": 0.0})
    assert value["tokens"] == testing.run(greedy.main, options)["tokens"]


def test_equal_seeds_give_equal_text_and_others_another():
    one, again, other = (
        testing.run(top_p.main, {"prompt": "hello", "seed": seed})["tokens"] for seed in (1, 1, 2)
    )
    assert one == again != other


def test_best_of_computes_the_prompt_once():
    value = testing.run(best_of.main, {"prompt": "hello", "n": 3, "max_tokens": 5})
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert value["prompt_tokens"] == len(prompt) - 2 * len("|im_start|>") - len("|im_end|>") - 1


@pytest.mark.parametrize("capacity", [2, 3, 4, 7, 12])
@pytest.mark.parametrize("limit", [64, 5])
def test_chat_history_equals_the_templates_rendering(capacity, limit):
    client = Client(["next", "bye"])
    hub = Hub(client, answering(REPLY), engine={"channel_capacity": capacity})
    value = asyncio.run(
        testing.run_with(hub, stream_chat.main, {"system": "s", "user": "u", "max_tokens": limit})
    )
    spoken = REPLY[: 1 + limit] if limit < len(REPLY) else REPLY[:-1]
    text = bytes(spoken).decode()
    history = (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        f"<|im_start|>assistant\n{text}<|im_end|>\n"
        "<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n"
    )
    # The last token was sampled and is not embedded, unless a stop token took its place.
    embedded = testing.byte_vocabulary().encode(history) + spoken[: None if limit > 12 else -1]
    assert hub.worker.sets_ever[0] == embedded
    assert value == {"turns": 2, "frozen": len(embedded)}
    assert "".join(client.messages) == text * 2


def test_a_steady_run_costs_one_credit_every_half_window():
    client = Client(["bye"])
    hub = Hub(client, answering([*b"a" * 60, 257]))
    asyncio.run(
        testing.run_with(hub, stream_chat.main, {"system": "s", "user": "u", "max_tokens": 99})
    )
    credits = [command for command in hub.commands if isinstance(command, m.Credit)]
    assert 60 / 3 - 2 <= len(credits) <= 60 / 3
    assert sum(command.fires for command in credits) + 6 - 60 <= 6


PLAIN = {"prompt": "hello", "max_tokens": 9}


@pytest.fixture
def expected():
    return testing.run(greedy.main, PLAIN)["tokens"]


def test_a_beam_of_width_one_is_greedy():
    assert (
        testing.run(beam.main, {**PLAIN, "width": 1})["text"]
        == (testing.run(greedy.main, PLAIN)["text"])
    )


def test_wider_beams_score_at_least_as_well():
    one, four = (testing.run(beam.main, {**PLAIN, "width": w})["score"] for w in (1, 4))
    assert four >= one


def test_speculative_tokens_are_greedy_ones_for_every_drafter(expected, monkeypatch):
    for drafter in (speculative.lookup, lambda ids: [], lambda ids: [0, 1, 2]):
        monkeypatch.setattr(speculative, "lookup", drafter)
        got = testing.run(speculative.main, PLAIN)
        assert got["tokens"] == expected
    assert got["fires"] == len(expected) - 1  # always wrong: a token a fire


def test_repetitive_text_needs_fewer_fires_than_tokens():
    options = {"prompt": "abcabcabc", "max_tokens": 30}
    got = testing.run(speculative.main, options, model=lambda t: 97 + (t[-1] - 96) % 3)
    assert got["tokens"] == [97 + i % 3 for i in range(30)]
    assert got["fires"] < 12


def test_guidance_follows_the_prompt_or_its_opposite(expected):
    for scale, same in ((0, "other"), (1, "hello")):
        got = testing.run(guidance.main, {**PLAIN, "negative": "other", "scale": scale})
        assert got["tokens"] == testing.run(greedy.main, {**PLAIN, "prompt": same})["tokens"]


def test_a_window_of_the_total_length_is_greedy_and_a_narrow_one_is_not(expected):
    assert testing.run(sliding_window.main, {**PLAIN, "window": 14})["tokens"] == expected
    assert testing.run(sliding_window.main, {**PLAIN, "window": 2})["tokens"] != expected


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "n": {"enum": [1, 77, 105]}},
    "required": ["city", "n"],
}


@pytest.mark.parametrize("letter", [b"a", b"}", b'"', b"7", b"\x80"])
def test_constrained_text_satisfies_the_schema_whatever_the_model_prefers(letter):
    def model(tokens):
        logits = [0.0] * 259
        for space in b" \t\r\n":
            logits[
                space
            ] = -1.0  # legal without a use, up to 64 in a row: it would use up the tokens
        logits[letter[0]] = 9.0
        return logits

    value = testing.run(constrained.main, {"question": "?", "schema": SCHEMA}, model=model)
    assert set(value["value"]) == {"city", "n"}
    assert value["value"]["n"] in (1, 77, 105) and len(value["value"]["city"]) <= 8


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": 3}}\n</tool_call>'


def saying(*replies):
    """A model that gives one reply a cue, then the end of the turn."""

    def model(tokens):
        text = bytes(t for t in tokens if t < 256)
        turns = text.split(b"user\n")[-1].split(CUE_BYTES)
        nth = text.count(b"<tool_response>")
        said, reply = len(turns[-1]), replies[nth].encode()
        return reply[said] if said < len(reply) else 257

    return model


CUE_BYTES = b"assistant\n"


def test_an_agent_finds_the_call_answers_it_and_uses_the_result():
    hub = Hub(Client(), saying("Let me see. " + CALL % 2, "The sum is 5."))
    value = asyncio.run(testing.run_with(hub, tool_agent.main, {"question": "2+3?"}))
    assert value == {"calls": 1, "answer": "The sum is 5."}
    history = bytes(t for t in hub.worker.sets_ever[0] if t < 256).decode()
    assert "<tool_response>\n5\n</tool_response>" in history


def test_an_agent_answers_two_calls_of_one_reply_that_end_in_different_tokens():
    two = CALL % 2 + "\n" + CALL % 4
    value = testing.run(tool_agent.main, {"question": "?"}, model=saying(two, "-", "5 and 7."))
    assert value == {"calls": 2, "answer": "5 and 7."}


def test_two_processes_talk_by_send_to_in_turns():
    client = Client(stays=True)
    values = testing.run_together(
        {"first": (talking.main, {"rounds": 3}),
         "second": (talking.main, {"rounds": 3, "peer": "first", "topic": "rain"})},
        model=answering([*b"yes", 257]), clients={"first": client},
    )  # fmt: skip
    assert values == {"first": {"log": ["yes"] * 3}, "second": {"log": ["yes"] * 3}}
    assert client.messages == [{"id": "first"}]
