"""What verbs say of a process that has ended, never was, or has no engine any more: all the same."""

import pytest

from pie_cli.usage import meant
from tests.cli.conftest import Engine

WAIT = "import asyncio\nprint('talked')\nasync def main(): await asyncio.Event().wait()"
VERBS = [("send", "{}", "x"), ("kill", "{}"), ("attach", "{}"), ("logs", "{}"), ("trace", "{}")]


@pytest.fixture(scope="module")
def ended(engine: Engine) -> str:
    done = engine.pie("run", "--detach", "--name", "talky", engine.write(WAIT))
    assert done.returncode == 0, done.stderr
    assert engine.pie("kill", "talky").returncode == 0
    return "talky"


@pytest.mark.parametrize("words", VERBS[:2])
def test_what_needs_a_live_process_says_that_it_has_ended(engine, ended, words):
    done = engine.pie(*(word.format(ended) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: `talky` has ended\n\nhint: `pie logs talky` prints what it has printed\n"
    )


def test_what_is_kept_of_an_ended_process_is_shown_as_such(engine, ended):
    done = engine.pie("attach", ended, "--no-stdin")
    assert done.returncode == 137
    assert done.stderr.startswith("`talky` has ended: this is what is kept of it\ntalked\n")
    assert engine.pie("logs", ended).stdout == "talked\n"


@pytest.mark.parametrize("words", VERBS)
def test_a_name_that_nobody_has_is_answered_alike(engine, ended, words):
    done = engine.pie(*(word.format("nobody") for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no process `nobody`\n\nhint: `pie ps` lists")


@pytest.mark.parametrize("words", VERBS)
@pytest.mark.parametrize("typed", ["talkei-1", "talkie"])
def test_a_near_miss_gets_the_live_process_that_was_meant(engine, words, typed):
    app = engine.write(WAIT)
    assert engine.pie("run", "--detach", "--name", "talkie-1", app).returncode == 0
    done = engine.pie(*(word.format(typed) for word in words))
    engine.pie("kill", "talkie-1")
    assert done.returncode == 2
    assert "hint: did you mean `talkie-1`? " in done.stderr


@pytest.mark.parametrize("words", VERBS)
def test_without_an_engine_this_is_what_is_said(own_engine, words):
    done = own_engine.pie(*(word.format("talky") for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: no engine is running, so there is no process `talky`\n\n"
        "hint: `pie run` starts one; what a process has printed is kept as long as its engine runs\n"
    )


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("talkie", "talky", True), ("cahtter", "chatter", True), ("chatt", "chat", True),
        ("--evnts", "--events", True), ("nope", "np1", False), ("files", "sh", False),
        ("ab", "ac", False), ("abcd", "abxy", False), ("x" * 3000, "y" * 3000, False),
    ],
)  # fmt: skip
def test_a_word_is_meant_when_few_letters_differ_for_its_length(word, known, near):
    assert meant(word, [known], "hint") == (f"did you mean `{known}`? hint" if near else "hint")
