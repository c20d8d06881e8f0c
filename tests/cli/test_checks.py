"""What an inferlet may say: clients and other inferlets parse it."""

import json

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


def test_output_has_two_streams():
    check(m.Output("stdout", "x"))
    with pytest.raises(ProtocolError):
        check(m.Output("error", "x"))
