"""What an inferlet may say: clients and other inferlets parse it."""

import json
import time

import pytest

from ipc import messages as m
from ipc.errors import ProtocolError
from pie_cli.engine.checks import check


@pytest.mark.parametrize(
    "value", [None, 1, -2.5e10, "text", {"a": [1, {"b": "\ud800"}]}, "\\ud800", "🦊", '"', [[]] * 9]
)
def test_all_that_python_writes_passes(value):
    for text in (json.dumps(value), json.dumps(value, indent=1)):
        check(m.Send(True, text))
        check(m.Returned(text))


@pytest.mark.parametrize(
    "text", ["", "x", "[1,]", '{"a"}', '"a', "1 2", "NaN", '"\\x"', '"\\ud8"', "[" * 100_000]
)
def test_what_is_no_json_breaks_the_protocol(text):
    for message in (m.Send(True, text), m.SendTo("p", True, text), m.Returned(text)):
        with pytest.raises(ProtocolError):
            check(message)
    check(m.Send(False, text))


@pytest.mark.parametrize(
    "text", [r'"\uD800"', r'"\udfff\ud800"', r'"\\ud8"', r'"\\\ud800"', r'{"\udc00": "\ud7ff"}']
)
def test_halves_of_surrogate_pairs_are_json_wherever_they_stand(text):
    json.loads(text)
    check(m.Returned(text))


@pytest.mark.parametrize(
    "text", [r'"\ud8"', r'"\uDx00"', r'"\ud8g0"', r'"\u00ud"', r'"\\\ud80"', r"\ud800"]
)
def test_half_an_escape_of_a_surrogate_is_none(text):
    with pytest.raises(ProtocolError):
        check(m.Returned(text))


def seconds(message: m.Returned) -> float:
    start = time.thread_time()
    check(message)
    return time.thread_time() - start


def test_a_message_of_nothing_but_surrogates_holds_up_the_hub_no_longer_than_others():
    count = 500_000
    odd, plain = (m.Returned('"' + half * count + '"') for half in (r"\ud800", r"\u1800"))
    taken = [(seconds(odd), seconds(plain)) for _ in range(5)]
    assert min(first for first, _ in taken) < 4 * min(second for _, second in taken), taken


def test_output_has_two_streams():
    check(m.Output("stdout", "x"))
    with pytest.raises(ProtocolError):
        check(m.Output("error", "x"))
