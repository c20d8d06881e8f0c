"""The Python client and the starter app on the real model."""

import os
import subprocess
import sys

import pytest

from pie_cli.client import AppError, Client
from tests.end_to_end.conftest import ROOT, environment

pytestmark = pytest.mark.model


@pytest.fixture
def client(home, monkeypatch):
    monkeypatch.setenv("PIE_HOME", str(home))
    monkeypatch.setenv("PIE_KEEP_ALIVE", "600")
    with Client() as client:
        yield client


def test_a_completion_and_a_chat(client, result):
    path = ROOT / "inferlets/completion.py"
    input = {"prompt": "The capital of France is", "max_tokens": 6}
    value = client.launch(path, input).result()
    assert value == result(path, input)
    chat = client.launch(ROOT / "inferlets/chat.py", {"prompt": "Hello", "max_tokens": 5})
    messages = chat.messages()
    first = next(messages)
    assert isinstance(first, str) and first
    chat.send("And again")
    chat.close_input()
    assert list(messages)
    assert chat.result()["turns"] == 2
    row = client.launch(path, {"max_tokens": 2})
    assert row.result()["text"]


def test_an_error_names_the_line(client):
    process = client.launch(source="from inferlet import *\ndef main():\n    model.encode(5)\n")
    with pytest.raises(AppError) as caught:
        process.result()
    assert caught.value.type == "TypeError" and "line 3" in caught.value.traceback


def test_the_starter_app_streams_what_it_returns(home, client, tmp_path):
    command = [sys.executable, "-m", "pie_cli", "new", str(tmp_path / "starter")]
    subprocess.run(command, check=True, cwd=ROOT, env=environment(home), stderr=subprocess.DEVNULL)
    assert sorted(os.listdir(tmp_path)) == ["starter.py", "test_starter.py"]
    process = client.launch(tmp_path / "starter.py", {"prompt": "One, two,", "max_tokens": 8})
    text = process.result()["text"]
    assert "".join(process.messages()).startswith(text[:5])
