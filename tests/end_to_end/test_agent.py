"""`inferlets/agent.py`: a call that is forced, its answer, and a reply in words."""

import json

import pytest

pytestmark = pytest.mark.model
DOES = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}


def test_the_agent_calls_one_of_its_tools_and_says_something_of_the_value(result):
    got = result("inferlets/agent.py", {"question": "What is 12 times 7?", "max_tokens": 12})
    name, arguments = got["call"]
    values = json.loads(arguments)
    assert set(values) == {"a", "b"} and all(isinstance(value, int) for value in values.values())
    assert got["value"] == DOES[name](**values)
    assert got["answer"].strip()
