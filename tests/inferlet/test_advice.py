"""Errors in Python's own words get hints that lead on."""

import asyncio
import sys

import pytest

from inferlet.runtime import handles
from inferlet.runtime.app import App
from inferlet.testing import Client, Hub
from ipc import messages as m

pytestmark = pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # of what apps forget

PASS = """
import asyncio
from inferlet import *
async def deep():
    return 1
async def main(input):
    token = Channel.from_([1])
    def choose():
        logits = intrinsics.output(0, "logits")
        best = reduce_argmax(logits)
        token.put(best)
        return {result}
    fwd, pipe = ForwardPass(), Pipeline()
    fwd.embed(token)
    fwd.state([WorkingSet()], StateGeometry.folding())
    result = fwd.epilogue(choose)
    {line}
"""


def last_word(source, input="{}", **options):
    """Of an app that runs to its end in this process."""
    hub = Hub(Client(stays=True), **options)
    launch = m.Launch("p1", "app.py", source, {}, input, {}, hub.info, hub.engine)
    finders, modules = list(sys.meta_path), set(sys.modules)
    handles.install(hub.runtime)
    try:
        return asyncio.run(App(launch).run())
    finally:
        handles.install(None)
        sys.meta_path[:] = finders
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) == "app.py":
                del sys.modules[name]


def message(line, result="best", **options):
    said = last_word(PASS.replace("{line}", line).replace("{result}", result), **options)
    assert isinstance(said, m.Raised), said
    return said.message


NEEDLESS = {
    "await pipe.submit(fwd)": "`pipe.submit` is not to be awaited, it has returned already",
    "await session.send('x')": "`session.send` is not to be awaited, it has returned already",
    "session.send(1); x = [await\\\n        pipe.park( )]": "`pipe.park` is not to be awaited",
    "await model.encode('é'); 'é'": "`model.encode` is not to be awaited, it has given its list already",
    "await 5": "a value of type int is not to be awaited",
    "x = session.send(1)\n    await x": "a value of type NoneType is not to be awaited",
}


@pytest.mark.parametrize("line", NEEDLESS)
def test_what_is_not_to_be_awaited_is_named(line):
    assert f"hint: {NEEDLESS[line]}" in message(line)
    assert message(line).endswith("drop the `await`")


@pytest.mark.parametrize(
    "line",
    [
        "return result",
        "return {'a': [result]}",
        "return deep()",
        "session.send(deep())",
        "session.send([result])",
        "tools.answer('f', deep())",
        "result + 1",
        "deep() + 1",
        "deep()['a']",
        "result.tolist()",
        "','.join([deep()])",
        "model.encode(deep())",
        "model.decode(result)",
        "model.decode([result])",
        "chat.user(deep())",
        "session.send_file(session.receive_file())",
        "ForwardPass().embed([result])",
        "ForwardPass().embed((1, result))",
        "Channel([1], dtype.i32).put(result)",
        "Channel.from_([result])",
        "fwd.readout(result)",
        "await pipe.run_ahead(fwd, deep(), print)",
        "Channel(result, dtype.i32)",
    ],
)
def test_what_was_not_awaited_is_called_so_and_the_remedy_is_await(line):
    said = message(line)
    assert "was not awaited" in said and "write `await`" in said, said
    assert "0x" not in said and "tolist" not in said.replace("attribute 'tolist'", "")


CALLBACKS = {
    ("(best, best)", "lambda t, lp: None"): (
        "missing a required argument: 'lp'",
        "the whole result is one argument: write `def on_token(result):` and in it `t, lp = result`",
    ),
    ("best", "lambda a, b: None"): ("'b'", "the whole result is one argument"),
    ("None", "lambda t: None"): ("'t'", "the epilogue returns nothing, so `on_token` gets no argument"),
    ("best", "lambda t, *, k: None"): ("'k'", "the whole result is one argument"),
}


@pytest.mark.parametrize("result, on_token", CALLBACKS)
def test_a_callback_that_cannot_take_the_result_is_refused_before_anything_fires(result, on_token):
    what, hint = CALLBACKS[result, on_token]
    line = f"pipe.submit(fwd)\n    print(await pipe.run_ahead(fwd, 3, {on_token}))"
    for each in (line, line.replace("pipe.submit(fwd)", "pass")):
        said = message(each, result)
        assert said.startswith("`run_ahead` cannot call `on_token`: ") and what in said, said
        assert f"hint: {hint}" in said


@pytest.mark.parametrize(
    "result, on_token",
    [
        ("(best, best)", "lambda t: False"),
        ("(best, best)", "lambda *t: False"),
        ("(best, best)", "lambda t, k=1: False"),
        ("best", "lambda: False"),
        ("None", "lambda *, k=1: False"),
        ("None", "lambda t=3: False"),
        ("best", "[].append"),
    ],
)
def test_callbacks_that_can_be_called_are(result, on_token):
    line = f"return await pipe.run_ahead(fwd, 3, {on_token})"
    said = last_word(PASS.replace("{line}", line).replace("{result}", result))
    assert said == m.Returned("3" if "append" in on_token else "1")


CALLS = {
    "softmax(logits, axis=-1)": "write `softmax(x)`; rows lie along the last axis",
    "reduce_argmax(logits, dim=0)": "write `reduce_argmax(x)`; rows lie along the last axis",
    "top_k(logits)": "write `top_k(x, k)`; rows lie along the last axis",
    "exp(logits, 1)": "write `exp(x)`; rows lie along the last axis",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_of_an_operation_gets_its_signature(call):
    assert message("pipe.submit(fwd)", call).endswith(f"\n\nhint: {CALLS[call]}")


def test_a_wrong_argument_of_the_sdk_gets_its_signature():
    assert message("pipe.run_ahead(fwd)").endswith("hint: write `.run_ahead(fwd, budget, on_token)`")
    assert message("chat.user(1, 2)").endswith("hint: write `chat.user(text)`")
    assert message("session.file('a', 'b')").endswith("hint: write `session.file(name)`")
    assert "hint" not in message("(lambda user: 1)(1, 2)")


def test_a_tensors_method_that_is_a_function_is_named():
    assert message("pipe.submit(fwd)", "logits.softmax()").endswith("hint: write `softmax(x)`")


def test_the_inner_loop_is_not_to_be_started():
    assert "`main` runs in an event loop already" in message("c = deep(); asyncio.run(c)")


CONTEXT = "reaches position 8999; the model's context ends at 4095\n\nhint: shorten the prompt"


def test_a_pass_beyond_the_context_is_told_of_the_context_before_it_is_cut():
    source = PASS.replace("fwd.embed(token)", "fwd.embed([{tokens}])").replace("{result}", "best")
    source = source.replace("{line}", "pipe.submit(fwd)")
    assert CONTEXT in last_word(source.replace("{tokens}", "1] * 9000 + [")).message
    absent = last_word(source.replace("{tokens}", "-1] * 8999 + [1")).message
    assert "cut the prompt into several passes" in absent


def test_a_file_that_is_not_attached_is_told_in_words_with_the_option():
    said = last_word("from inferlet import *\ndef main(): session.file('doc')")
    words = "no file `doc` is attached (attached: none)\n\nhint: launch with `--file doc=PATH`"
    assert (said.error, said.message) == ("KeyError", words)


def test_an_input_that_was_not_given_is_told_with_the_option():
    said = last_word("def main(given): return given['max_tokens']", '{"x": 1}')
    assert said.message == (
        "'max_tokens'\n\nhint: the input lacks it: launch with `-- --max-tokens VALUE`, or write "
        "`given.get('max_tokens', …)`"
    )
    other = last_word("def main(given):\n    d = {}\n    return d['max_tokens']")
    assert other.message == "'max_tokens'"


@pytest.mark.parametrize(
    "main, repair",
    [
        ("async def main(prompt='x'): return prompt", "`prompt = input.get('prompt', 'x')`"),
        ("def main(n: int): return n", "`n = input['n']`"),
        (
            "from __future__ import annotations\ndef main(n: str): return n", "`n = input['n']`",
        ),
    ],
)  # fmt: skip
def test_a_main_that_takes_something_else_than_the_input_is_refused(main, repair):
    said = last_word(main)
    assert said.error == "TypeError"
    assert said.message.startswith("`main` in `app.py` gets one argument, the whole input: a dict")
    assert said.message.endswith(f"and in it {repair}")
